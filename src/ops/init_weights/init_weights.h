// Initial weights from counters: value i of a named tensor is the same on every device, rank and layout.
#pragma once

#include "autograd/init_weights.h"
#include "base/rng.h"
#include "ops/variant.h"

namespace kiln {

struct DrawWeightsProblem {
  int64_t count;
  DType dtype;
  bool split;
};

struct DrawWeightsForward {
  DrawWeightsProblem p;
  const Tensor& flat;
  const Tensor& low;  // undefined unless split
  ParamInit init;
  PhiloxKey key;
  int64_t first;
  WeightSlice slice;
};

struct DrawWeightsOp {
  static constexpr const char* kName = "draw_weights";
  static constexpr const char* kSummary = "initial weights: truncated normals from Philox counters, or ones";
  using Problem = DrawWeightsProblem;
  using Forward = DrawWeightsForward;
  using Backward = NoBackward;
  static std::span<const Variant<DrawWeightsOp>> rows();
  static Problem example() { return {65536, DType::f32, false}; }
};

KILN_HD inline float drawn_weight(const ParamInit& init, PhiloxKey key, int64_t index) {
  if (init.kind == ParamInit::Kind::ones) return 1.0f;
  return exact::mul(init.std, philox_truncated_normal(key, static_cast<uint64_t>(index), init.bound));
}

void draw_weights_cpu_naive(RankContext& ctx, const DrawWeightsForward& f);
void draw_weights_cuda_naive(RankContext& ctx, const DrawWeightsForward& f);

}  // namespace kiln
