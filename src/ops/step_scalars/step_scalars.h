// The numbers of a step that live on the device, so that the host never waits inside one: learning rate,
// loss, gradient norm, clip factor, step count, and the verdict whether everything was finite.
#pragma once

#include <cmath>

#include "ops/variant.h"

namespace kiln {

// One record in device memory. `bad_attempt` is sticky: once set, this update and every later one do nothing,
// and the host, which reads the record a step late, finds the weights as they were before the bad step.
struct StepScalars {
  // written by the host before a step
  int64_t attempt = 0;  // counts from 1
  double lr = 0;
  // written by the device
  int64_t step = 0;         // updates done
  int64_t bad_attempt = 0;  // 0: all finite so far
  double beta1_power =
      1;  // beta^step, for Adam's bias correction; running products, the same bits everywhere
  double beta2_power = 1;
  double loss = 0;
  double grad_norm = 0;
  double clip = 1;
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
  static constexpr const char* kSummary = "adds a micro-step's loss to the step's record";
  using Problem = AccumulateLossProblem;
  using Forward = AccumulateLossForward;
  using Backward = NoBackward;
  static std::span<const Variant<AccumulateLossOp>> rows();
  static Problem example() { return {DType::f32, true, 1}; }
};

void accumulate_loss(RankContext& ctx, const Tensor& loss, const Tensor& scalars, bool first, double weight);

// --- step_verdict: reads all gradients once; norm, clip factor, finite or not; counts the step if finite

struct StepVerdictProblem {
  int64_t count;
  DType dtype;
  double max_norm;  // 0: no clipping
  double beta1, beta2;
};

struct StepVerdictForward {
  StepVerdictProblem p;
  const Tensor& grads;      // flat
  const Tensor& scalars;    // one StepScalars
  const Tensor& workspace;  // one double per chunk of kNormChunk gradients
};

struct StepVerdictOp {
  static constexpr const char* kName = "step_verdict";
  static constexpr const char* kSummary = "gradient norm, clip factor, and whether the step may update";
  // The squares are summed in fixed chunks, then the chunks in order: the same bits for any number of
  // threads.
  static constexpr int64_t kNormChunk = 8192;
  using Problem = StepVerdictProblem;
  using Forward = StepVerdictForward;
  using Backward = NoBackward;
  static std::span<const Variant<StepVerdictOp>> rows();
  static Problem example() { return {65536, DType::f32, 1, 0.9, 0.999}; }
  static int64_t chunks(const Problem& p) { return (p.count + kNormChunk - 1) / kNormChunk; }
};

void step_verdict(RankContext& ctx, const Tensor& grads, const Tensor& scalars, double max_norm, double beta1,
                  double beta2, std::string_view variant = {});

Tensor make_step_scalars(RankContext& ctx);

// What both devices do with the sum of squares; one function, so that they cannot differ.
KILN_HD inline void judge(StepScalars& s, double sum_of_squares, double max_norm, double beta1,
                          double beta2) {
  s.grad_norm = ::sqrt(sum_of_squares);
  s.clip = max_norm > 0 && s.grad_norm > max_norm ? max_norm / s.grad_norm : 1.0;
  const bool finite = s.grad_norm - s.grad_norm == 0 && s.loss - s.loss == 0;  // NaN and Inf fail this
  if (!finite && s.bad_attempt == 0) s.bad_attempt = s.attempt;
  if (s.bad_attempt != 0) return;
  s.step += 1;
  s.beta1_power *= beta1;
  s.beta2_power *= beta2;
}

void accumulate_loss_cpu_naive(RankContext& ctx, const AccumulateLossForward& f);
void accumulate_loss_cuda_naive(RankContext& ctx, const AccumulateLossForward& f);
void step_verdict_cpu_naive(RankContext& ctx, const StepVerdictForward& f);
void step_verdict_cuda_naive(RankContext& ctx, const StepVerdictForward& f);

}  // namespace kiln
