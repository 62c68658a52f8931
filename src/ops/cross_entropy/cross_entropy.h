// The mean over tokens of -log softmax(logits)[target]. Tokens whose target is kIgnoreTarget count for
// nothing.
#pragma once

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

inline constexpr int32_t kIgnoreTarget = -100;

struct CrossEntropyProblem {
  int64_t rows, vocab;
  DType dtype;
};

struct CrossEntropyForward {
  CrossEntropyProblem p;
  const Tensor& logits;     // [rows, vocab]
  const Tensor& targets;    // int32 [rows]
  const Tensor& loss;       // [1], stat dtype; NaN where a target is outside the vocabulary
  const Tensor& lse;        // [rows], stat dtype: log of the sum of exponentials
  const Tensor& count;      // [1], stat dtype: tokens that count
  const Tensor& workspace;  // [rows], stat dtype: each token's loss
};

struct CrossEntropyBackward {
  CrossEntropyProblem p;
  const Tensor& dloss;  // [1]
  const Tensor& logits;
  const Tensor& targets;
  const Tensor& lse;
  const Tensor& count;
  GradSlot dlogits;
};

struct CrossEntropyOp {
  static constexpr const char* kName = "cross_entropy";
  static constexpr OpKind kKind = OpKind::loss;
  static constexpr const char* kSummary = "mean over tokens of -log softmax(logits)[target]";
  using Problem = CrossEntropyProblem;
  using Forward = CrossEntropyForward;
  using Backward = CrossEntropyBackward;
  static std::span<const Variant<CrossEntropyOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 1000, DType::f32}; }
};

// logits [..., V] and int32 targets [...] give the loss, [1] in fp32 (fp64 for fp64 logits). All targets
// ignored: the loss is 0 and so are the gradients. Saves logits, targets, lse, count.
Tensor cross_entropy(RankContext& ctx, const Tensor& logits, const Tensor& targets,
                     std::string_view variant = {});

// The mean over the tokens that count, summed in one order whatever the number of threads.
struct MeanLoss {
  double loss;
  int64_t count;
};
template <class A>
MeanLoss mean_loss(const A* losses, const int32_t* targets, int64_t rows) {
  double total = 0;
  int64_t count = 0;
  for (int64_t r = 0; r < rows; ++r) {
    total += static_cast<double>(losses[r]);
    count += targets[r] != kIgnoreTarget;
  }
  return {count == 0 ? 0 : total / static_cast<double>(count), count};
}

void cross_entropy_cpu_fused_forward(RankContext& ctx, const CrossEntropyForward& f);
void cross_entropy_cpu_fused_backward(RankContext& ctx, const CrossEntropyBackward& b);
void cross_entropy_cpu_naive_forward(RankContext& ctx, const CrossEntropyForward& f);
void cross_entropy_cpu_naive_backward(RankContext& ctx, const CrossEntropyBackward& b);
void cross_entropy_cuda_fused_forward(RankContext& ctx, const CrossEntropyForward& f);
void cross_entropy_cuda_fused_backward(RankContext& ctx, const CrossEntropyBackward& b);
void cross_entropy_cuda_naive_forward(RankContext& ctx, const CrossEntropyForward& f);
void cross_entropy_cuda_naive_backward(RankContext& ctx, const CrossEntropyBackward& b);

}  // namespace kiln
