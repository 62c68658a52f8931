// y[t] = W[token[t]]. The gradient sums, for every vocabulary row, the tokens that used it, in token order:
// the same bits every time, and rows nobody used are written as zero, so the arena needs no clearing.
#pragma once

#include <limits>

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

// A token whose row another rank has: zeros, and no gradient. What is added up over the ranks is the row.
inline constexpr int32_t kTokenElsewhere = std::numeric_limits<int32_t>::min();

struct EmbeddingProblem {
  int64_t tokens, vocab, cols;
  DType dtype;
  bool vectorizable = true;  // all tensors of the pass, and all rows of each
};

struct EmbeddingForward {
  EmbeddingProblem p;
  const Tensor& tokens;  // int32 [tokens]
  const Tensor& weight;  // [vocab, cols]
  const Tensor&
      y;  // [tokens, cols]; NaN where a token is outside the vocabulary, unless it is kTokenElsewhere
};

struct EmbeddingBackward {
  EmbeddingProblem p;
  const Tensor& dy;
  const Tensor& tokens;
  GradSlot dweight;
  const Tensor& workspace;
};

struct EmbeddingOp {
  static constexpr const char* kName = "embedding";
  static constexpr OpKind kKind = OpKind::embedding;
  static constexpr const char* kSummary = "y = W[tokens]";
  using Problem = EmbeddingProblem;
  using Forward = EmbeddingForward;
  using Backward = EmbeddingBackward;
  static std::span<const Variant<EmbeddingOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 1000, 256, DType::f32}; }
};

// tokens int32 [...] and weight [vocab, C] give [..., C]. Saves tokens.
Tensor embedding(RankContext& ctx, const Tensor& tokens, const ParamRef& weight,
                 std::string_view variant = {});

void embedding_cpu_naive_forward(RankContext& ctx, const EmbeddingForward& f);
void embedding_cpu_naive_backward(RankContext& ctx, const EmbeddingBackward& b);
void embedding_cuda_fused_forward(RankContext& ctx, const EmbeddingForward& f);
void embedding_cuda_fused_backward(RankContext& ctx, const EmbeddingBackward& b);
void embedding_cuda_naive_forward(RankContext& ctx, const EmbeddingForward& f);
void embedding_cuda_naive_backward(RankContext& ctx, const EmbeddingBackward& b);

}  // namespace kiln
