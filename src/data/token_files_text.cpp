#include "data/token_files_text.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/error.h"
#include "data/load_tokenizer.h"
#include "data/token_folder.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

bool named_as_tokens(const fs::path& path) {
  return path.extension() == ".bin" || path.extension() == ".npy";
}

bool starts_as_tokens(const std::string& path) {
  int32_t magic = 0;
  std::ifstream file(path, std::ios::binary);
  return file.read(reinterpret_cast<char*>(&magic), sizeof magic) &&
         (magic == kLlmcMagicGpt2 || magic == kLlmcMagicLlama3);
}

// Beside tokens there may be what describes them, and no text.
bool holds_only_tokens(const std::string& folder) {
  constexpr std::array<std::string_view, 4> kBeside = {".json", ".tiktoken", ".model", ".meta"};
  bool tokens = false;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    if (path.filename().string().starts_with('.')) continue;
    if (named_as_tokens(path)) {
      tokens = true;
    } else if (path.filename() != "merges.txt" &&
               std::find(kBeside.begin(), kBeside.end(), path.extension().string()) == kBeside.end()) {
      return false;
    }
  }
  return tokens && !error;
}

bool holds_part(const std::string& folder, std::string_view part) {
  const fs::directory_iterator files(folder);
  return std::any_of(begin(files), end(files), [&](const fs::directory_entry& f) {
    return named_as_tokens(f.path()) && f.path().filename().string().find(part) != std::string::npos;
  });
}

std::shared_ptr<const Tokenizer> tokenizer_beside(const std::string& path, const TextOptions& o) {
  if (o.tokenizer_named) return load_tokenizer(o.tokenizer);
  const std::string folder = fs::is_directory(path) ? path : fs::absolute(path).parent_path().string();
  if (is_token_folder(folder) && read_token_folder(folder).tokenizer == "byte") return load_tokenizer("byte");
  return holds_tokenizer(folder) ? load_tokenizer(folder) : nullptr;
}

int32_t largest_id(const std::vector<TokenShard>& shards, ThreadPool& pool) {
  constexpr int64_t kBlock = 64 * 1024;
  std::mutex mutex;
  int32_t largest = 0;
  for (const TokenShard& s : shards) {
    pool.parallel_for((s.size() + kBlock - 1) / kBlock, 16, [&](int64_t begin, int64_t end) {
      std::vector<int32_t> ids(kBlock);
      int32_t most = 0;
      for (int64_t b = begin; b < end; ++b) {
        const auto some =
            std::span(ids).first(static_cast<std::size_t>(std::min(kBlock, s.size() - b * kBlock)));
        s.read(b * kBlock, some, INT32_MAX);
        most = std::max(most, *std::max_element(some.begin(), some.end()));
      }
      const std::lock_guard lock(mutex);
      largest = std::max(largest, most);
    });
  }
  return largest;
}

struct Shards {
  std::vector<TokenShard> train, val;
};

Shards open_shards(const std::string& path, double held_out) {
  Shards s;
  if (fs::is_directory(path)) {
    for (const std::string& file : token_files(path, "train")) s.train.emplace_back(file);
    if (holds_part(path, "val"))
      for (const std::string& file : token_files(path, "val")) s.val.emplace_back(file);
    return s;
  }
  const int64_t all = TokenShard(path).size();
  const auto last = static_cast<int64_t>(held_out * static_cast<double>(all));
  if (last == all) throw Error(cat(path, " has ", all, " tokens, and none is left to train on"));
  s.train.emplace_back(path, 0, all - last);
  if (last > 0) s.val.emplace_back(path, all - last, last);
  return s;
}

}  // namespace

bool is_token_files(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return holds_only_tokens(path);
  return fs::is_regular_file(status) && (named_as_tokens(path) || starts_as_tokens(path));
}

TrainingText read_token_files(const std::string& path, const TextOptions& o, ThreadPool& pool) {
  Shards shards = open_shards(path, o.held_out);
  TrainingText t;
  t.name = path;
  t.tokenizer = tokenizer_beside(path, o);
  t.vocab_size = t.tokenizer ? t.tokenizer->vocab_size()
                             : 1 + std::max(largest_id(shards.train, pool), largest_id(shards.val, pool));
  t.train = std::make_shared<TokenSet>(std::move(shards.train), t.vocab_size, pool);
  const bool fills_a_window = std::any_of(shards.val.begin(), shards.val.end(),
                                          [&](const TokenShard& s) { return s.size() > o.context; });
  if (fills_a_window) t.validation = std::make_shared<TokenSet>(std::move(shards.val), t.vocab_size, pool);
  return t;
}

}  // namespace kiln
