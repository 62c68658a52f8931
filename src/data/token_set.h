// Tokens to train on: one or more shards, each a memory-mapped file or ids held in memory. Reading past a
// shard's end into the next is not possible: a sequence is within one shard.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "data/token_format.h"

namespace kiln {

class TokenShard {
 public:
  explicit TokenShard(const std::string& path);                       // maps the file
  TokenShard(const std::string& path, int64_t begin, int64_t count);  // some of its tokens
  TokenShard(std::vector<int32_t> ids, std::string name);             // holds them
  TokenShard(TokenShard&&) noexcept = default;
  TokenShard& operator=(TokenShard&&) noexcept = default;

  const std::string& name() const { return name_; }
  const TokenLayout& layout() const { return layout_; }
  int64_t size() const { return layout_.count; }

  // Ids begin, begin + 1, ... Error for one outside the vocabulary, and when the file was shortened
  // meanwhile.
  void read(int64_t begin, std::span<int32_t> ids, int32_t vocab_size) const;

 private:
  std::span<const std::byte> bytes() const;

  std::string name_;
  MappedFile file_;
  std::vector<int32_t> ids_;
  TokenLayout layout_;
};

class TokenSet {
 public:
  // Every id is checked against the vocabulary now, and not when training reaches it. The pool is used for
  // that.
  TokenSet(std::vector<TokenShard> shards, int32_t vocab_size, ThreadPool& pool);

  const std::vector<TokenShard>& shards() const { return shards_; }
  int64_t size() const { return size_; }
  // A checksum of the first 64 million ids: distinguishes texts of the same length.
  uint32_t checksum() const { return checksum_; }
  int32_t vocab_size() const { return vocab_size_; }

 private:
  std::vector<TokenShard> shards_;
  int32_t vocab_size_;
  int64_t size_ = 0;
  uint32_t checksum_ = 0;
};

// The token files behind a path: the file itself; for a folder that `kiln tokenize` made, those its
// dataset.json names; for any other, the .bin and .npy files with `part` ("train" or "val") in their names,
// or all of them for "train" when no name has either. Error when there are none.
std::vector<std::string> token_files(const std::string& path, const std::string& part);

}  // namespace kiln
