// Rotary position embedding of queries and keys, in one call. Each head's D values are D / 2 pairs; pair i of
// the token at position t is turned by the angle t * theta^(-2 i / D):
//
//   y_a = a cos - b sin,   y_b = a sin + b cos
//
// Rotate-half (the layout of Hugging Face's LLaMA): pair i is elements i and i + D / 2 of the head.
// Interleaved (the layout of Meta's own weights): elements 2 i and 2 i + 1. A rotation's gradient is the
// rotation back, by the same sines and cosines, so nothing is saved.
#pragma once

#include "ops/rope/rope_scaling.h"
#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct RopeProblem {
  int64_t B, T, H, Hkv, D;
  DType dtype;
  bool interleaved;
  int64_t offset;  // position of the first token
  double theta;
  bool vectorizable = true;  // all tensors of the pass, and all rows of each
  RopeScaling scaling = {};
  int64_t length = 0;  // of the whole sequence, these tokens and all before them
  int64_t rows() const { return B * T; }
  int64_t pairs() const { return D / 2; }
};

// One rotation serves both directions: sign is +1 forward and -1 backward, where q and k are the gradients of
// the outputs.
struct RopeRotation {
  RopeProblem p;
  double sign;
  const Tensor& q;  // [B, T, H D]
  const Tensor& k;  // [B, T, Hkv D]
  GradSlot q_out;   // [B, T, H D]; may be q itself; undefined: not wanted
  GradSlot k_out;   // [B, T, Hkv D]; likewise
  const Tensor& workspace;
};

struct RopeOp {
  static constexpr const char* kName = "rope";
  static constexpr OpKind kKind = OpKind::elementwise;
  static constexpr const char* kSummary = "q and k turned by position: rotary embedding";
  using Problem = RopeProblem;
  using Forward = RopeRotation;
  using Backward = RopeRotation;
  static std::span<const Variant<RopeOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {1, 128, 4, 2, 64, DType::f32, false, 0, 10000.0, true, {}, 128}; }
};

struct RopeOptions {
  int64_t heads = 1;
  int64_t kv_heads = 1;
  double theta = 10000;
  int64_t offset = 0;  // position of the first token: how many were there before, when decoding with a cache
  RopeScaling scaling = {};
  int64_t length = 0;  // of the sequence, where these tokens are a part out of it; 0: offset and they
  bool interleaved = false;
  bool in_place = false;  // the results take the memory of q and k; those must not be read afterwards
  std::string_view variant = {};
};

struct RopeResult {
  Tensor q, k;
};

// q [B, T, H D] and k [B, T, Hkv D], whose rows may be strided: usually they are column ranges of the packed
// projection. Saves nothing.
RopeResult rope(RankContext& ctx, const Tensor& q, const Tensor& k, const RopeOptions& options);

// The turn of one token's pair, in double: every variant's angles come from here.
KILN_HD inline double rope_frequency(const RopeProblem& p, int64_t pair) {
  return rope_frequency(p.theta, p.D, pair, p.length, p.scaling);
}

void rope_cpu_naive(RankContext& ctx, const RopeRotation& r);
void rope_cpu_fused(RankContext& ctx, const RopeRotation& r);
std::size_t rope_cpu_fused_workspace(const RopeProblem& p, Pass pass);
inline constexpr int64_t kRopeMostPairs = 128;  // of the kernel below: it keeps a token's angles at hand
void rope_cuda_fused(RankContext& ctx, const RopeRotation& r);
void rope_cuda_naive(RankContext& ctx, const RopeRotation& r);

}  // namespace kiln
