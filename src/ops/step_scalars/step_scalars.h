// The numbers of a step that live on the device, so that the host never waits inside one: learning rate,
// loss, gradient norm, clip factor, step count, and whether everything was finite.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/variant.h"

namespace kiln {

// One record in device memory. `bad_attempt` is sticky: once set, this update and every later one do nothing,
// and the host, which reads the record a step late, finds the weights as they were before the bad step. An
// overflow that a smaller loss scale may cure leaves out one update only: `skip`.
struct StepScalars {
  // written by the host before a step
  int64_t attempt = 0;  // counts from 1
  double lr = 0;
  // written by the device
  int64_t step = 0;         // updates done
  int64_t bad_attempt = 0;  // 0: all finite so far
  // rate^step of the optimizer's StepRates: running products, which have the same bits everywhere. They are
  // here, and not in the optimizer's own state, because finite or not decides whether a step counts.
  double rate1_power = 1;
  double rate2_power = 1;
  double loss = 0;
  double square_sum = 0;  // of all gradients; next to loss, so that ranks can sum both in one collective
  double grad_norm = 0;   // unscaled
  double clip = 1;
  // The loss scale. A checkpoint keeps step, both powers, and the first three of these; all
  // else is set again in each step.
  double loss_scale = 1;   // what the next step's loss gradient is multiplied by
  int64_t good_steps = 0;  // since the scale last changed
  int64_t skipped = 0;     // updates left out because gradients overflowed
  int64_t skip = 0;        // 1: the update of the step just finished is one of them
  double unscale = 1;  // 1 / the scale of the step just finished: whoever reads gradients multiplies by it
  int64_t skips_in_row = 0;  // updates left out one after the other because something was not finite

  KILN_HD bool updates() const { return bad_attempt == 0 && skip == 0; }
  KILN_HD double grad_factor() const { return clip * unscale; }  // what an optimizer multiplies gradients by
};

// --- accumulate_loss: scalars.loss = (first ? 0 : scalars.loss) + loss * weight

struct AccumulateLossProblem {
  DType dtype;  // of the loss
  bool first;
  double weight;
};

struct AccumulateLossForward {
  AccumulateLossProblem p;
  const Tensor& loss;     // [1]
  const Tensor& scalars;  // one StepScalars
};

struct AccumulateLossOp {
  static constexpr const char* kName = "accumulate_loss";
  static constexpr OpKind kKind = OpKind::scalars;
  static constexpr const char* kSummary = "adds a micro-step's loss to the step's record";
  using Problem = AccumulateLossProblem;
  using Forward = AccumulateLossForward;
  using Backward = NoBackward;
  static std::span<const Variant<AccumulateLossOp>> rows();
  static Problem example() { return {DType::f32, true, 1}; }
};

void accumulate_loss(RankContext& ctx, const Tensor& loss, const Tensor& scalars, bool first, double weight);

// --- square_sum: scalars.square_sum = sum of g^2 over flat ranges of gradients

struct SquareSumProblem {
  int64_t count;  // total over all ranges
  DType dtype;
  int64_t ranges = 1;
};

struct SquareSumForward {
  SquareSumProblem p;
  std::span<const Tensor> grads;  // flat each
  const Tensor& scalars;          // one StepScalars
  const Tensor& workspace;        // one double per chunk; fused on CUDA: per block
};

struct SquareSumOp {
  static constexpr const char* kName = "square_sum";
  static constexpr OpKind kKind = OpKind::scalars;
  static constexpr const char* kSummary = "sum of squares of all gradients, in one read";
  // The squares are summed in fixed chunks, each range beginning one, then the chunks in order: the same bits
  // for any number of threads.
  static constexpr int64_t kChunk = 8192;
  using Problem = SquareSumProblem;
  using Forward = SquareSumForward;
  using Backward = NoBackward;
  static std::span<const Variant<SquareSumOp>> rows();
  static Problem example() { return {65536, DType::f32}; }
  static int64_t chunks(int64_t count) { return (count + kChunk - 1) / kChunk; }
  // Total over all ranges, at most: the size of each is not given.
  static int64_t chunks(const Problem& p) { return (p.count + p.ranges * (kChunk - 1)) / kChunk; }
  // Blocks of the fused CUDA kernel: four for each of an H200's 132 multiprocessors, each taking every so
  // many tiles. The bits depend on the sizes alone, not on the GPU.
  static int64_t blocks(const Problem& p) { return std::clamp<int64_t>(chunks(p), 1, 528); }
  // Ranges that one launch of it reads: their places and sizes are in its parameters, 4 KB of them.
  static constexpr int kRanges = 240;
  static int64_t launches(const Problem& p) {
    return std::max<int64_t>(1, (p.ranges + kRanges - 1) / kRanges);
  }
};

void square_sum(RankContext& ctx, std::span<const Tensor> grads, const Tensor& scalars,
                std::string_view variant = {});
inline void square_sum(RankContext& ctx, const Tensor& grads, const Tensor& scalars,
                       std::string_view variant = {}) {
  square_sum(ctx, {&grads, 1}, scalars, variant);
}

// --- finish_step_scalars: gradient norm, clip factor, finite or not; counts the step if it may update

// The scale that keeps small gradients from vanishing in fp16. It starts high; gradients that overflow cost
// one update and halve it, `interval` updates without one double it. Growth and backoff are powers of two, so
// that scaling and unscaling change no bit.
struct LossScaling {
  double initial = 65536;
  int64_t interval = 2000;  // 0: the scale stays as it is, and what overflows ends the run
  static constexpr double kGrowth = 2, kBackoff = 0.5, kSmallest = 1;
};

// Two rates whose powers an optimizer needs: Adam corrects the bias of its running means by beta^step. An
// optimizer that has none leaves both at 1.
struct StepRates {
  double one = 1, two = 1;
};

struct FinishStepScalarsProblem {
  double max_norm;  // 0: no clipping
  StepRates rates = {};
  int64_t scale_interval = 0;  // of LossScaling
  int64_t max_skips = 0;  // steps in a row that are left out where they are not finite; 0: the first is bad
};

struct FinishStepScalarsForward {
  FinishStepScalarsProblem p;
  const Tensor& scalars;  // one StepScalars
};

struct FinishStepScalarsOp {
  static constexpr const char* kName = "finish_step_scalars";
  static constexpr OpKind kKind = OpKind::scalars;
  static constexpr const char* kSummary = "gradient norm, clip factor, and whether the step may update";
  using Problem = FinishStepScalarsProblem;
  using Forward = FinishStepScalarsForward;
  using Backward = NoBackward;
  static std::span<const Variant<FinishStepScalarsOp>> rows();
  static Problem example() { return {1, {0.9, 0.999}}; }
};

void finish_step_scalars(RankContext& ctx, const Tensor& scalars, double max_norm,
                         const StepRates& rates = {}, int64_t scale_interval = 0, int64_t max_skips = 0);

// --- loss_gradient: the gradient backward starts from, share * loss_scale

struct LossGradientProblem {
  DType dtype;   // of the gradient
  double share;  // of the mean: 1 / (micro-steps x ranks)
};

struct LossGradientForward {
  LossGradientProblem p;
  const Tensor& scalars;  // one StepScalars
  const Tensor& grad;     // [1]
};

struct LossGradientOp {
  static constexpr const char* kName = "loss_gradient";
  static constexpr OpKind kKind = OpKind::scalars;
  static constexpr const char* kSummary = "a micro-step's share of the loss, times the loss scale";
  using Problem = LossGradientProblem;
  using Forward = LossGradientForward;
  using Backward = NoBackward;
  static std::span<const Variant<LossGradientOp>> rows();
  static Problem example() { return {DType::f32, 1}; }
};

void loss_gradient(RankContext& ctx, const Tensor& scalars, double share, const Tensor& grad);

Tensor make_step_scalars(RankContext& ctx, double loss_scale = 1);
Tensor loss_and_squares(const Tensor& scalars);  // both, as they are side by side: fp64 [2]

// What both devices do; one function, so that they cannot differ.
KILN_HD inline void finish(StepScalars& s, const FinishStepScalarsProblem& p) {
  s.skip = 0;
  s.unscale = 1 / s.loss_scale;
  s.grad_norm = ::sqrt(s.square_sum) * s.unscale;
  s.clip = p.max_norm > 0 && s.grad_norm > p.max_norm ? p.max_norm / s.grad_norm : 1.0;
  const bool loss_finite = s.loss - s.loss == 0;  // NaN and Inf fail this
  // Beyond this a square leaves fp32, and Adam's second moment would stay infinite.
  const bool finite = loss_finite && s.grad_norm * s.clip < 1e18;  // NaN fails this too
  if (s.bad_attempt == 0 && !finite) {
    // The loss is not scaled: one that is not finite stays so at any scale.
    if (p.scale_interval > 0 && loss_finite && s.loss_scale > LossScaling::kSmallest) {
      s.loss_scale = ::fmax(s.loss_scale * LossScaling::kBackoff, LossScaling::kSmallest);
      s.good_steps = 0;
      s.skipped += 1;
      s.skip = 1;
    } else if (s.skips_in_row < p.max_skips) {
      s.skips_in_row += 1;
      s.skipped += 1;
      s.skip = 1;
    } else {
      s.bad_attempt = s.attempt;
    }
  }
  if (!s.updates()) return;
  s.skips_in_row = 0;
  s.step += 1;
  s.rate1_power *= p.rates.one;
  s.rate2_power *= p.rates.two;
  if (p.scale_interval > 0 && ++s.good_steps >= p.scale_interval) {
    const double larger = s.loss_scale * LossScaling::kGrowth;
    if (larger - larger == 0) s.loss_scale = larger;
    s.good_steps = 0;
  }
}

void accumulate_loss_cpu_naive(RankContext& ctx, const AccumulateLossForward& f);
void accumulate_loss_cuda_naive(RankContext& ctx, const AccumulateLossForward& f);
void square_sum_cpu_fused(RankContext& ctx, const SquareSumForward& f);
void square_sum_cpu_naive(RankContext& ctx, const SquareSumForward& f);
void square_sum_cuda_fused(RankContext& ctx, const SquareSumForward& f);
void square_sum_cuda_naive(RankContext& ctx, const SquareSumForward& f);
void finish_step_scalars_cpu_naive(RankContext& ctx, const FinishStepScalarsForward& f);
void finish_step_scalars_cuda_naive(RankContext& ctx, const FinishStepScalarsForward& f);
void loss_gradient_cpu_naive(RankContext& ctx, const LossGradientForward& f);
void loss_gradient_cuda_naive(RankContext& ctx, const LossGradientForward& f);

}  // namespace kiln
