// Texts to try tokenizers on, from Philox: the same on every machine.
#pragma once

#include <cstdint>
#include <string>

#include "base/rng.h"
#include "data/utf8.h"

namespace kiln {

class RandomText {
 public:
  explicit RandomText(uint64_t seed) : key_(philox_key(seed, "test.text")) {}

  uint32_t below(uint32_t n) { return philox(key_, index_++, 0).x % n; }

  // Bytes of all kinds, mostly not UTF-8.
  std::string bytes(std::size_t size) {
    std::string text;
    for (std::size_t i = 0; i < size; ++i) text += static_cast<char>(below(256));
    return text;
  }

  // Characters that patterns tell apart: letters, digits, spaces and marks of several alphabets,
  // contractions.
  std::string unicode(std::size_t characters) {
    static constexpr char32_t kSome[] = {
        U'a',   U'b',   U'z',   U'A',   U'Z',   U's',  U't',    U'r',    U'e',     U'v',   U'm',   U'l',
        U'd',   U'S',   U'L',   U'0',   U'1',   U'9',  U' ',    U' ',    U' ',     U'\n',  U'\r',  U'\t',
        U'\'',  U'\'',  U'.',   U'!',   U'/',   U'_',  U'-',    0xa0,    0x85,     0x2003, 0x3000, 0x180e,
        0x200b, 0xe9,   0xdf,   0x130,  0x1c5,  0x2b0, 0x3b1,   0x416,   0x5d0,    0x627,  0x661,  0x300,
        0x903,  0x4e2d, 0x6587, 0xac00, 0x2167, 0xbd,  0x1f600, 0x1d400, 0x10ffff, 0xfffd, 0x17f,  0x2028};
    std::string text;
    for (std::size_t i = 0; i < characters; ++i) append_utf8(text, kSome[below(std::size(kSome))]);
    return text;
  }

  // Words of a small language, so that pairs repeat: syllables, spaces, now and then a number or a line end.
  std::string prose(std::size_t words) {
    static constexpr const char* kSyllables[] = {"ka",  "ki", "lo", "mun", "ta", "re",
                                                 "sol", "an", "er", "ing", "th", "a"};
    std::string text;
    for (std::size_t i = 0; i < words; ++i) {
      const uint32_t n = 1 + below(4) * below(2);
      for (uint32_t k = 0; k <= n; ++k) text += kSyllables[below(4) * below(4)];
      if (below(9) == 0) text += std::to_string(below(2000));
      if (below(7) == 0) text += ",";
      text += below(12) == 0 ? "\n" : below(15) == 0 ? "  " : " ";
    }
    return text;
  }

 private:
  PhiloxKey key_;
  uint64_t index_ = 0;
};

}  // namespace kiln
