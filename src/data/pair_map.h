// A hash table from a pair of token ids to a small value: open addressing, keys and values side by side. The
// inner loops of training and encoding ask it for nearly every pair of neighbours, and mostly miss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kiln {

inline uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

template <class Value>
class PairMap {
 public:
  explicit PairMap(std::size_t expected = 16) { rebuild(capacity_for(expected)); }

  std::size_t size() const { return size_; }

  const Value* find(uint64_t key) const {
    for (std::size_t i = slot(key);; i = (i + 1) & mask_) {
      if (entries_[i].key == key) return &entries_[i].value;
      if (entries_[i].key == kNone) return nullptr;
    }
  }

  // The value of `key`, put there by default where there was none. Valid until the next call.
  Value& operator[](uint64_t key) {
    if (2 * (size_ + 1) > entries_.size()) rebuild(2 * entries_.size());
    for (std::size_t i = slot(key);; i = (i + 1) & mask_) {
      if (entries_[i].key == key) return entries_[i].value;
      if (entries_[i].key == kNone) {
        entries_[i].key = key;
        ++size_;
        return entries_[i].value;
      }
    }
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};  // ids are never negative, so no pair is this
  struct Entry {
    uint64_t key = kNone;
    Value value{};
  };

  static std::size_t capacity_for(std::size_t n) {
    std::size_t capacity = 16;
    while (capacity < 2 * n) capacity *= 2;
    return capacity;
  }
  std::size_t slot(uint64_t key) const { return (key * 0x9e3779b97f4a7c15u >> 20) & mask_; }

  void rebuild(std::size_t capacity) {
    std::vector<Entry> old(capacity);
    old.swap(entries_);
    mask_ = capacity - 1;
    for (Entry& e : old) {
      if (e.key == kNone) continue;
      std::size_t i = slot(e.key);
      while (entries_[i].key != kNone) i = (i + 1) & mask_;
      entries_[i] = std::move(e);
    }
  }

  std::vector<Entry> entries_;
  std::size_t mask_ = 0;
  std::size_t size_ = 0;
};

}  // namespace kiln
