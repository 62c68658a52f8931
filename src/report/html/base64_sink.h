// Bytes as base64, passed on in pieces of about a megabyte. A browser reads a million numbers of a page from
// it in milliseconds, where a JSON array takes a second.
#pragma once

#include <cstdint>
#include <string>

#include "base/text_sink.h"

namespace kiln {

class Base64Sink {
 public:
  explicit Base64Sink(const TextSink& sink) : sink_(sink) {}

  void byte(uint8_t b) {
    group_ = group_ << 8 | b;
    if (++count_ == 3) put_group();
  }
  void word(uint32_t w) {  // little-endian
    for (int i = 0; i < 4; ++i) byte(static_cast<uint8_t>(w >> (8 * i) & 0xff));
  }
  // Seven bits to a byte, the lowest first, the highest bit set where more follow.
  void varint(uint64_t n) {
    for (; n >= 0x80; n >>= 7) byte(static_cast<uint8_t>(n | 0x80));
    byte(static_cast<uint8_t>(n));
  }
  void finish() {
    if (count_ > 0) {
      const int given = count_;
      while (count_ != 0) byte(0);
      for (int i = given + 1; i < 4; ++i) text_[text_.size() - static_cast<std::size_t>(4 - i)] = '=';
    }
    sink_(text_);
    text_.clear();
  }

 private:
  void put_group() {
    static constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int shift = 18; shift >= 0; shift -= 6) text_ += kAlphabet[group_ >> shift & 63];
    group_ = 0;
    count_ = 0;
    if (text_.size() < (std::size_t{1} << 20)) return;
    sink_(std::string_view(text_).substr(0, text_.size() - 4));  // the last group may yet want its padding
    text_.erase(0, text_.size() - 4);
  }

  const TextSink& sink_;
  std::string text_;
  uint32_t group_ = 0;
  int count_ = 0;
};

}  // namespace kiln
