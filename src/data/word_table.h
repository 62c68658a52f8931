// Gives each distinct word a number, in the order of first occurrence. Words are kept in one long buffer;
// looking one up costs a hash of its bytes and, mostly, one comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

class WordTable {
 public:
  WordTable() { clear(); }

  std::size_t size() const { return words_.size(); }
  std::size_t bytes() const { return text_.size(); }
  std::string_view operator[](std::size_t index) const {
    return std::string_view(text_).substr(words_[index].begin, words_[index].length);
  }

  struct Place {
    uint32_t index;
    bool fresh;  // it was not there before
  };
  Place insert(std::string_view word);
  void clear();

 private:
  struct Word {
    std::size_t begin;
    uint32_t length;
    uint32_t hash;
  };
  void grow();

  std::string text_;
  std::vector<Word> words_;
  std::vector<uint32_t> slots_;  // index + 1; 0: free
};

uint64_t hash_bytes(std::string_view bytes);

}  // namespace kiln
