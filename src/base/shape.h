// Shape: up to five extents held inline, so that making a tensor never touches the heap.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/error.h"

namespace kiln {

class Shape {
 public:
  static constexpr int kMaxRank = 5;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    for (int64_t d : dims) push_back(d);
  }

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[axis < 0 ? axis + rank_ : axis]; }
  int64_t& operator[](int axis) { return dims_[axis < 0 ? axis + rank_ : axis]; }
  int64_t last() const { return rank_ == 0 ? 1 : dims_[rank_ - 1]; }

  void push_back(int64_t d) {
    if (rank_ == kMaxRank) throw Error(cat("a shape holds at most ", kMaxRank, " axes"));
    if (d < 0) throw Error(cat("negative extent ", d, " in a shape"));
    dims_[rank_++] = d;
  }

  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) {
      if (__builtin_mul_overflow(n, dims_[i], &n))
        throw Error(cat("shape ", str(), " has too many elements"));
    }
    return n;
  }

  // All axes but the last, multiplied: a [B, T, C] activation seen as rows of C.
  int64_t rows() const { return last() == 0 ? 0 : numel() / last(); }

  Shape with_last(int64_t d) const {
    if (rank_ == 0) throw Error("a scalar's shape has no last axis to change");
    Shape s = *this;
    --s.rank_;
    s.push_back(d);
    return s;
  }

  std::string str() const {
    std::string s = "[";
    for (int i = 0; i < rank_; ++i) s += (i ? ", " : "") + std::to_string(dims_[i]);
    return s + "]";
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i) {
      if (a.dims_[i] != b.dims_[i]) return false;
    }
    return true;
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace kiln
