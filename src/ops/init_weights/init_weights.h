// Initial weights from counters: value i of a named tensor is the same on every device, rank and layout.
#pragma once

#include "autograd/init_weights.h"
#include "base/rng.h"
#include "ops/variant.h"

namespace kiln {

struct InitWeightsProblem {
  int64_t count;
  DType dtype;
  bool split;
};

struct InitWeightsForward {
  InitWeightsProblem p;
  const Tensor& flat;
  const Tensor& low;  // undefined unless split
  ParamInit init;
  PhiloxKey key;
  int64_t first;
  WeightSlice slice;
};

struct InitWeightsOp {
  static constexpr const char* kName = "init_weights";
  static constexpr OpKind kKind = OpKind::elementwise;
  static constexpr const char* kSummary = "initial weights: truncated normals from Philox counters, or ones";
  using Problem = InitWeightsProblem;
  using Forward = InitWeightsForward;
  using Backward = NoBackward;
  static std::span<const Variant<InitWeightsOp>> rows();
  static Problem example() { return {65536, DType::f32, false}; }
};

KILN_HD inline float drawn_weight(const ParamInit& init, PhiloxKey key, int64_t index) {
  if (init.kind == ParamInit::Kind::ones) return 1.0f;
  return exact::mul(init.std, philox_truncated_normal(key, static_cast<uint64_t>(index), init.bound));
}

void init_weights_cpu_naive(RankContext& ctx, const InitWeightsForward& f);
void init_weights_cuda_naive(RankContext& ctx, const InitWeightsForward& f);

}  // namespace kiln
