// Runs a piece of clean-up when a scope ends, by return or by exception.
#pragma once

#include <utility>

namespace kiln {

template <class F>
class OnExit {
 public:
  explicit OnExit(F f) : f_(std::move(f)) {}
  ~OnExit() { f_(); }
  OnExit(const OnExit&) = delete;
  OnExit& operator=(const OnExit&) = delete;

 private:
  F f_;
};

}  // namespace kiln
