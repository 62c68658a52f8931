#include "data/shard_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "data/token_format.h"

namespace kiln {
namespace {

std::array<int32_t, kLlmcHeaderInts> header(bool wide, int64_t count) {
  std::array<int32_t, kLlmcHeaderInts> h{};
  h[0] = wide ? kLlmcMagicLlama3 : kLlmcMagicGpt2;
  h[1] = wide ? kLlmcVersionLlama3 : kLlmcVersionGpt2;
  h[2] = static_cast<int32_t>(count);
  return h;
}

}  // namespace

ShardWriter::ShardWriter(std::string folder, std::string prefix, int32_t vocab_size, int64_t tokens_per_shard)
    : folder_(std::move(folder)),
      prefix_(std::move(prefix)),
      vocab_size_(vocab_size),
      limit_(tokens_per_shard),
      wide_(vocab_size > 0x10000) {
  if (limit_ < 1 || limit_ > kMostTokens)
    throw Error(cat("shards of ", limit_, " tokens; expected 1 to ", kMostTokens), {}, ErrorKind::usage);
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::open() {
  std::string number = std::to_string(files_.size());
  number.insert(0, 6 - std::min<std::size_t>(6, number.size()), '0');
  const std::string name = cat(prefix_, "_", number, ".bin");
  file_ = std::make_unique<AtomicFile>((std::filesystem::path(folder_) / name).string());
  const auto h = header(wide_, 0);  // the count comes when it is known
  file_->append(std::as_bytes(std::span(h)));
  files_.push_back({name, 0});
  in_file_ = 0;
}

void ShardWriter::close() {
  if (!file_) return;
  const auto h = header(wide_, in_file_);
  file_->overwrite(0, std::as_bytes(std::span(h)));
  file_->commit();
  files_.back().tokens = in_file_;
  file_.reset();
}

void ShardWriter::append(std::span<const int32_t> ids) {
  while (!ids.empty()) {
    if (!file_) open();
    const auto n = std::min(ids.size(), static_cast<std::size_t>(limit_ - in_file_));
    const std::size_t size = wide_ ? 4 : 2;
    packed_.resize(n * size);
    for (std::size_t i = 0; i < n; ++i) {
      const int32_t id = ids[i];
      if (id < 0 || id >= vocab_size_)
        throw Error(cat("id ", id, " to be written is beyond the vocabulary of ", vocab_size_));
      std::memcpy(packed_.data() + i * size, &id, size);  // little-endian: the low bytes come first
    }
    file_->append(packed_);
    in_file_ += static_cast<int64_t>(n);
    tokens_ += static_cast<int64_t>(n);
    ids = ids.subspan(n);
    if (in_file_ == limit_) close();
  }
}

std::vector<ShardFile> ShardWriter::finish() {
  close();
  return files_;
}

}  // namespace kiln
