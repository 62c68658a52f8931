// A rank on one thread, and tensors from numbers and back: what small tests of the tape begin with.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "autograd/rank_context.h"

namespace kiln {

class OpFixture : public testing::Test {
 protected:
  OpFixture() : ctx(options()) {}
  static RankOptions options() {
    RankOptions o;
    o.threads = 1;
    return o;
  }
  Tensor make(const Shape& s, std::vector<float> values) {
    Tensor t = ctx.empty(s, DType::f32);
    ctx.upload(t, values.data());
    return t;
  }
  std::vector<float> read(const Tensor& t) {
    std::vector<float> v(static_cast<std::size_t>(t.numel()));
    ctx.download(v.data(), t);
    return v;
  }
  RankContext ctx;
};

}  // namespace kiln
