// In which order a step uses its sharded weights: written down in one micro-step, followed in the next. Uses
// of one weight that follow each other directly (the row views of a packed weight; the end of a recomputed
// forward and the beginning of its backward) are one window: the weight is gathered once for all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/param.h"

namespace kiln {

struct GatherWindow {
  Param* param = nullptr;
  DType as = DType::f32;
  int uses = 0;

  bool is(const Param& p, DType dtype) const { return param == &p && as == dtype; }
  int64_t bytes() const { return param->padded * static_cast<int64_t>(size_of(as)); }
};

class GatherOrder {
 public:
  void begin();  // of a micro-step
  // The next use. True when it is the one that was expected: then here() is its window. False where no order
  // is known, or from the first other use on.
  bool next(Param& p, DType as);
  // The micro-step went through: what it used is the order of the next one. True when it is another than
  // before.
  bool adopt();

  bool known() const { return !order_.empty(); }
  bool following() const { return following_; }
  int64_t here() const { return here_; }  // window of the last use; -1 before the first
  // No use of that window will come any more.
  bool over(int64_t window) const { return window < here_ || (window == here_ && taken_ == uses_at(window)); }
  int64_t size() const { return static_cast<int64_t>(order_.size()); }
  const GatherWindow& operator[](int64_t window) const { return order_[static_cast<std::size_t>(window)]; }
  int64_t largest() const;                               // bytes of a window's weight
  const std::string& change() const { return change_; }  // the first use that was not expected, in words
  int64_t changes() const { return changes_; }           // micro-steps that used another order than the last

 private:
  int uses_at(int64_t window) const { return window < 0 ? 0 : (*this)[window].uses; }

  std::vector<GatherWindow> order_, seen_;
  bool following_ = false;
  int64_t here_ = -1;
  int taken_ = 0;  // uses of the window `here_`
  int64_t changes_ = 0;
  std::string change_;
};

}  // namespace kiln
