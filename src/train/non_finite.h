// Finds the first op whose output is not finite. Attached only while a bad step is run again: it reads
// outputs back to the host until it has found one. The step runs to its end, since other ranks wait for
// this one in its collectives.
#pragma once

#include "autograd/op_observer.h"
#include "base/error.h"
#include "base/shape.h"

namespace kiln {

// The flat index of the first element that is NaN or infinite, and its value; or -1. Reads all of it back.
int64_t first_non_finite(RankContext& ctx, const Tensor& t, double& value);

class NonFiniteFinder final : public OpObserver {
 public:
  void on_op_end(RankContext& ctx, const OpEvent& event) override;

  // Op, variant, pass, scope, output and element; empty: all were finite.
  const std::string& found() const { return found_; }
  int64_t op() const { return op_; }  // of the step's ops, which one: the same number on all ranks
  const std::string& tensor() const { return tensor_; }  // "layers.0.mlp: linear forward y"
  const Shape& shape() const { return shape_; }
  const std::vector<float>& values() const { return values_; }

 private:
  int64_t op_ = 0, ops_ = 0;
  std::string found_, tensor_;
  Shape shape_;
  std::vector<float> values_;
};

// The elements of `t`, row by row.
std::vector<float> float_values(RankContext& ctx, const Tensor& t);

}  // namespace kiln
