// How often each word occurs in a text: all that the trainer needs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "data/borrowed.h"
#include "data/special_tokens.h"
#include "data/splitter.h"
#include "data/word_table.h"

namespace kiln {

class WordCounts {
 public:
  // Special tokens found in a text separate words and are not counted.
  WordCounts(std::shared_ptr<const Splitter> splitter, const SpecialTokens& specials);
  ~WordCounts();
  WordCounts(const WordCounts&) = delete;
  WordCounts& operator=(const WordCounts&) = delete;

  // Adds a text's words, on all threads of the pool. `progress` is told of bytes done, from the calling
  // thread.
  void add(std::string_view text, ThreadPool& pool, const std::function<void(std::size_t)>& progress = {});

  struct Counted {
    std::string_view word;
    int64_t count;
  };
  std::vector<Counted> all() const;  // sorted by word, so that threads leave no trace

 private:
  struct Part;
  std::shared_ptr<const Splitter> splitter_;
  SpecialTokens specials_;
  BorrowPool<Part> parts_;  // as many as threads ever worked at once
};

}  // namespace kiln
