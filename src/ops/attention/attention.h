// o = softmax(scale * q k^T + mask) v, per head. Grouped heads (H a multiple of Hkv) share keys and values.
// Causal with Tq != Tk is aligned at the bottom right: query i sees keys 0 .. i + Tk - Tq. A query that sees
// no key gets o = 0. A NaN reaches what attends to it and nothing else, except in `composed`: see there.
//
// Sequences of varying length (varlen) are packed one after the other in tensors of one batch, [1, rows,
// heads * D], and each is by itself; lse is [1, H, rows]. Where each begins is known on the device alone
// (Sequences).
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct AttentionProblem {
  int64_t B, Tq, Tk;
  int64_t H, Hkv, D;
  DType dtype;
  float scale;
  bool causal;
  // Lengths that vary: B sequences, Tq and Tk are the longest, and all_queries and all_keys the rows of all.
  bool varlen = false;
  // Hopper's TMA can address the tensors of the pass: tma_takes() of each that flash_hopper gives to it.
  bool tma = true;
  int64_t all_queries = 0, all_keys = 0;

  // Of the tensors.
  KILN_HD int64_t batches() const { return varlen ? 1 : B; }
  KILN_HD int64_t query_rows() const { return varlen ? all_queries : Tq; }
  KILN_HD int64_t key_rows() const { return varlen ? all_keys : Tk; }
  KILN_HD int64_t group() const { return H / Hkv; }
  // One past the last key that query i sees.
  KILN_HD int64_t visible(int64_t i) const {
    const int64_t n = causal ? i + 1 + Tk - Tq : Tk;
    return n < 0 ? 0 : (n > Tk ? Tk : n);
  }
};

// Of a problem whose lengths vary, in the device's memory: sequence b has rows cu[b] .. cu[b + 1] - 1. B + 1
// entries each, the first 0 and none smaller than the one before.
struct Sequences {
  const int32_t* cu_queries = nullptr;
  const int32_t* cu_keys = nullptr;
};

struct AttentionForward {
  AttentionProblem p;
  const Tensor& q;      // [B, Tq, H*D], rows may be strided
  const Tensor& k;      // [B, Tk, Hkv*D]
  const Tensor& v;      // [B, Tk, Hkv*D]
  const Tensor& o;      // [B, Tq, H*D]
  const Tensor& probs;  // [B, H, Tq, Tk]; undefined for variants that do not keep it
  const Tensor& lse;    // [B, H, Tq], stat dtype: log of the sum of exponentials; undefined likewise
  const Tensor& workspace;
  Sequences sequences = {};
};

struct AttentionBackward {
  AttentionProblem p;
  const Tensor& dout;
  const Tensor& q;
  const Tensor& k;
  const Tensor& v;
  const Tensor& probs;  // undefined for variants that do not keep it; o and lse likewise
  const Tensor& o;
  const Tensor& lse;
  GradSlot dq, dk, dv;
  const Tensor& workspace;
  Sequences sequences = {};
};

struct AttentionOp {
  static constexpr const char* kName = "attention";
  static constexpr OpKind kKind = OpKind::attention;
  static constexpr const char* kSummary = "o = softmax(scale * q k^T + mask) v, per head";
  using Problem = AttentionProblem;
  using Forward = AttentionForward;
  using Backward = AttentionBackward;
  static std::span<const Variant<AttentionOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {2, 128, 128, 4, 4, 64, DType::f32, 0.125f, true}; }
};

// Whether TMA can address a [B, T, heads * D] tensor, undefined ones included: it counts in units of 16
// bytes.
bool tma_takes(const AttentionProblem& p, const Tensor& t);
// As the problem of a pass, whose tensors flash_hopper would read and write by TMA.
AttentionProblem with_layout(AttentionProblem p, std::initializer_list<const Tensor*> tensors);

struct AttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 1;
  bool causal = true;
  float scale = 0;  // 0: 1 / sqrt(D)
  std::string_view variant = {};
};

// q [B, Tq, H*D]; k and v [B, Tk, Hkv*D]. Naive saves q, k, v and the probabilities;
// flash saves o and lse in their place, and memory then grows with T instead of its square. The parts of
// `composed` save q, k, v and the probabilities.
Tensor attention(RankContext& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options);

// From other ops, through the tape; on any device that has them.
Tensor attention_composed(RankContext& ctx, const AttentionProblem& p, const Tensor& q, const Tensor& k,
                          const Tensor& v, bool compiled_softmax = false);
Cost attention_composed_cost(const AttentionProblem& p, Pass pass);
std::string attention_cpu_small_m_unsupported(const AttentionProblem& p, const DeviceTraits& traits);
void attention_cpu_small_m_forward(RankContext& ctx, const AttentionForward& f);
std::size_t attention_cpu_flash_workspace(const AttentionProblem& p, Pass pass);
void attention_cpu_flash_forward(RankContext& ctx, const AttentionForward& f);
void attention_cpu_flash_backward(RankContext& ctx, const AttentionBackward& b);
void attention_cpu_naive_forward(RankContext& ctx, const AttentionForward& f);
void attention_cpu_naive_backward(RankContext& ctx, const AttentionBackward& b);
void attention_cuda_flash_forward(RankContext& ctx, const AttentionForward& f);
void attention_cuda_flash_backward(RankContext& ctx, const AttentionBackward& b);
void attention_cuda_hopper_forward(RankContext& ctx, const AttentionForward& f);
void attention_cuda_hopper_backward(RankContext& ctx, const AttentionBackward& b);
void attention_cuda_hopper_atomic_backward(RankContext& ctx, const AttentionBackward& b);
void attention_cuda_flash_wide_forward(RankContext& ctx, const AttentionForward& f);
void attention_cuda_flash_wide_backward(RankContext& ctx, const AttentionBackward& b);
void attention_cuda_flash_tf32_forward(RankContext& ctx, const AttentionForward& f);
void attention_cuda_flash_tf32_backward(RankContext& ctx, const AttentionBackward& b);
void attention_cuda_flash_fp32_forward(RankContext& ctx, const AttentionForward& f);
void attention_cuda_flash_fp32_backward(RankContext& ctx, const AttentionBackward& b);
void attention_cuda_tiled_forward(RankContext& ctx, const AttentionForward& f);
void attention_cuda_tiled_backward(RankContext& ctx, const AttentionBackward& b);
void attention_cuda_tiled_skip_forward(RankContext& ctx, const AttentionForward& f);
void attention_cuda_tiled_skip_backward(RankContext& ctx, const AttentionBackward& b);
void attention_cuda_tiled_split_forward(RankContext& ctx, const AttentionForward& f);
void attention_cuda_tiled_split_backward(RankContext& ctx, const AttentionBackward& b);
void attention_cuda_tiled_async_forward(RankContext& ctx, const AttentionForward& f);
void attention_cuda_tiled_async_backward(RankContext& ctx, const AttentionBackward& b);
void attention_cuda_tiled_atomic_backward(RankContext& ctx, const AttentionBackward& b);
void attention_cuda_naive_forward(RankContext& ctx, const AttentionForward& f);
void attention_cuda_naive_backward(RankContext& ctx, const AttentionBackward& b);

}  // namespace kiln
