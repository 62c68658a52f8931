// A vector with a fixed capacity held inline: tape nodes are made by the thousand per step and must not
// allocate.
#pragma once

#include <array>
#include <initializer_list>
#include <span>

#include "base/error.h"

namespace kiln {

template <class T, int Capacity>
class SmallVector {
 public:
  SmallVector() = default;
  SmallVector(std::initializer_list<T> items) {
    for (const T& i : items) push_back(i);
  }

  void push_back(T item) {
    if (size_ == Capacity) throw Error(cat("a SmallVector of capacity ", Capacity, " is full"));
    items_[size_++] = std::move(item);
  }
  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](int i) { return items_[i]; }
  const T& operator[](int i) const { return items_[i]; }
  T* begin() { return items_.data(); }
  T* end() { return items_.data() + size_; }
  const T* begin() const { return items_.data(); }
  const T* end() const { return items_.data() + size_; }
  std::span<const T> span() const { return {items_.data(), static_cast<std::size_t>(size_)}; }

 private:
  std::array<T, Capacity> items_{};
  int size_ = 0;
};

}  // namespace kiln
