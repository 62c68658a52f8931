// Encodes a text of any size on all threads of a pool. The ids come out in order and are the same for any
// number of threads: the text is cut where a cut changes nothing, and the cuts depend on the text alone.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "base/thread_pool.h"
#include "data/borrowed.h"
#include "data/tokenizer.h"

namespace kiln {

class TextEncoder {
 public:
  TextEncoder(const Tokenizer& tokenizer, ThreadPool& pool) : tokenizer_(tokenizer), pool_(pool) {}

  // Receives the next ids, and how many bytes of the text they were.
  using Sink = std::function<void(std::span<const int32_t> ids, std::size_t bytes)>;
  void encode(std::string_view text, SpecialText special, const Sink& sink);

 private:
  const Tokenizer& tokenizer_;
  ThreadPool& pool_;
  BorrowPool<Tokenizer::Scratch> scratch_;  // words of one text are cached for the next
};

// The whole of it at once.
std::vector<int32_t> encode_text(const Tokenizer& tokenizer, std::string_view text, SpecialText special,
                                 ThreadPool& pool);

}  // namespace kiln
