#include "data/word_table.h"

#include <cstring>

namespace kiln {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

constexpr uint64_t kOdd1 = 0x9e3779b97f4a7c15u, kOdd2 = 0xd6e8feb86659fd93u;

}  // namespace

uint64_t hash_bytes(std::string_view bytes) {
  uint64_t h = kOdd2 ^ bytes.size();
  const char* p = bytes.data();
  std::size_t left = bytes.size();
  uint64_t eight = 0;
  for (; left >= sizeof eight; p += sizeof eight, left -= sizeof eight) {
    std::memcpy(&eight, p, sizeof eight);
    h = mix(h ^ eight, kOdd1);
  }
  eight = 0;
  if (left > 0) std::memcpy(&eight, p, left);
  return mix(h ^ eight, kOdd2 ^ left);
}

WordTable::Place WordTable::insert(std::string_view word) {
  if (2 * (words_.size() + 1) > slots_.size()) grow();
  const uint64_t full = hash_bytes(word);
  const auto hash = static_cast<uint32_t>(full >> 32);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = full & mask;; i = (i + 1) & mask) {
    if (slots_[i] == 0) {
      words_.push_back({text_.size(), static_cast<uint32_t>(word.size()), hash});
      text_ += word;
      slots_[i] = static_cast<uint32_t>(words_.size());
      return {slots_[i] - 1, true};
    }
    const Word& w = words_[slots_[i] - 1];
    if (w.hash == hash && w.length == word.size() &&
        std::memcmp(text_.data() + w.begin, word.data(), word.size()) == 0) {
      return {slots_[i] - 1, false};
    }
  }
}

void WordTable::clear() {
  text_.clear();
  words_.clear();
  slots_.assign(1024, 0);
}

void WordTable::grow() {
  slots_.assign(2 * slots_.size(), 0);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t k = 0; k < words_.size(); ++k) {
    std::size_t i = hash_bytes((*this)[k]) & mask;
    while (slots_[i] != 0) i = (i + 1) & mask;
    slots_[i] = static_cast<uint32_t>(k + 1);
  }
}

}  // namespace kiln
