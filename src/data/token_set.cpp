#include "data/token_set.h"

#include <algorithm>
#include <filesystem>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/folder.h"
#include "data/token_folder.h"

namespace kiln {

TokenShard::TokenShard(const std::string& path)
    : name_(path), file_(path), layout_(sniff_tokens(file_.bytes(), path)) {}

TokenShard::TokenShard(const std::string& path, int64_t begin, int64_t count) : TokenShard(path) {
  layout_.offset += static_cast<std::size_t>(begin) * size_of(layout_.type);
  layout_.count = count;
}

TokenShard::TokenShard(std::vector<int32_t> ids, std::string name)
    : name_(std::move(name)),
      ids_(std::move(ids)),
      layout_{"memory", TokenType::i32, 0, static_cast<int64_t>(ids_.size())} {
  if (ids_.empty()) throw Error(cat(name_, " holds no tokens"));
}

std::span<const std::byte> TokenShard::bytes() const {
  return ids_.empty() ? file_.bytes() : std::as_bytes(std::span(ids_));
}

void TokenShard::read(int64_t begin, std::span<int32_t> ids, int32_t vocab_size) const {
  file_.check_unchanged();
  read_tokens(bytes(), layout_, begin, ids, vocab_size, name_);
}

TokenSet::TokenSet(std::vector<TokenShard> shards, int32_t vocab_size, ThreadPool& pool)
    : shards_(std::move(shards)), vocab_size_(vocab_size) {
  constexpr int64_t kBlock = 64 * 1024;
  if (shards_.empty()) throw Error("no token files");
  for (const TokenShard& shard : shards_) {
    size_ += shard.size();
    if (shard.layout().type == TokenType::u16 && vocab_size > 0xffff) continue;  // all of them fit
    const int64_t blocks = (shard.size() + kBlock - 1) / kBlock;
    pool.parallel_for(blocks, 16, [&](int64_t begin, int64_t end) {
      std::vector<int32_t> ids(kBlock);
      for (int64_t b = begin; b < end; ++b) {
        const auto n = static_cast<std::size_t>(std::min(kBlock, shard.size() - b * kBlock));
        shard.read(b * kBlock, std::span(ids).first(n), vocab_size);
      }
    });
  }
  int64_t left = int64_t{64} << 20;
  std::vector<int32_t> ids(kBlock);
  for (const TokenShard& shard : shards_) {
    for (int64_t at = 0; at < shard.size() && left > 0; at += kBlock) {
      const auto some =
          std::span(ids).first(static_cast<std::size_t>(std::min({kBlock, shard.size() - at, left})));
      shard.read(at, some, vocab_size);
      checksum_ = crc32c(std::as_bytes(some), checksum_);
      left -= static_cast<int64_t>(some.size());
    }
  }
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  try {
    for (FolderEntry& e : list_folder(folder)) names.push_back(std::move(e.name));
  } catch (const std::filesystem::filesystem_error& e) {
    throw Error(cat("cannot list ", folder, ": ", e.code().message()));
  }
  return names;
}

std::vector<std::string> token_files(const std::string& path, const std::string& part) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    throw Error(cat("there are no tokens at ", path), "`kiln tokenize` makes them from text");
  if (!fs::is_directory(status)) return {path};
  if (is_token_folder(path)) {
    std::vector<std::string> files;
    const TokenFolder folder = read_token_folder(path);
    for (const ShardFile& f : part == "val" ? folder.val : folder.train)
      files.push_back((fs::path(path) / f.name).string());
    if (files.empty()) throw Error(cat(path, " holds no ", part, " tokens"));
    return files;
  }
  std::vector<std::string> all, chosen;
  bool named = false;
  for (const std::string& name : names_in(path)) {
    if (!name.ends_with(".bin") && !name.ends_with(".npy")) continue;
    all.push_back((fs::path(path) / name).string());
    const bool has_part = name.find(part) != std::string::npos;
    named = named || name.find("train") != std::string::npos || name.find("val") != std::string::npos;
    if (has_part) chosen.push_back(all.back());
  }
  if (!named && part == "train") chosen = all;
  if (chosen.empty())
    throw Error(cat("the folder ", path, " holds no ", part, " tokens"), "expected .bin or .npy files");
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace kiln
