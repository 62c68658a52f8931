// A small LLaMA trained by ranks that hold parts of it, alone and on a mesh with a data-parallel strategy:
// the run of a single process, to rounding, step by step.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/tape.h"
#include "dist/comm/threads/thread_group.h"
#include "dist/launch/parallel_rank.h"
#include "support/shaken.h"
#include "support/tiny_run.h"
#include "support/whole_weights.h"
#include "train/memory_prediction.h"
#include "train/trainer.h"

namespace kiln {
namespace {

constexpr int kSteps = 3;

TinyRun tiny(Precision precision) {
  TinyRun run;
  run.model.d_model = 32;
  run.model.heads = 8;
  run.model.kv_heads = 4;
  run.model.layers = 2;
  run.precision = precision;
  run.step.batch = 2;
  // Where a gradient is next to nothing AdamW's first steps are its sign: rounding would decide them.
  run.step.optimizer.adamw.eps = 1e-3;
  return run;
}

struct Course {
  std::vector<double> losses, norms;
  WholeWeights first_values, values, grads[kSteps];
};

struct Layout {
  int data = 1, tensor = 1;
  const char* strategy = "none";
};

// One rank's part of the course. `share`: micro-steps of a rank, so that as many batches are seen whatever
// the number of data-parallel ranks.
void train(RankContext& ctx, Communicator& all, const TinyRun& run, const Layout& layout, Course& course) {
  ParallelRank place(ctx, all, layout.tensor, layout.strategy);
  Strategy& strategy = place.strategy();
  Llama model(run.model, place.partition());
  ParamStore& params = model.params();
  ParamLayout kept = layout_for(run.precision, run.step, 2, strategy);  // fp32 gradients everywhere
  kept.tensor_ranks = layout.tensor;
  params.materialize(ctx, kept);
  course.first_values.take(ctx, params, params.values());
  strategy.attach(params);
  TrainStep step(ctx, model, strategy, run.step);
  int64_t number = 0;
  for (int s = 0; s < kSteps; ++s) {
    std::vector<TinyBatch> batches;
    std::vector<HostBatch> views;
    for (int i = 0; i < run.step.micro_steps; ++i)
      batches.push_back(tiny_batch(run, number + i * layout.data + place.data().rank()));
    number += run.step.micro_steps * layout.data;
    for (const TinyBatch& b : batches) views.push_back(b.host());
    step.run(views, run.lr);
    const StepScalars result = step.finish();
    // Of zero1's whole arena only this rank's pieces are sums.
    if (std::string_view(layout.strategy) != "zero1") course.grads[s].take(ctx, params, params.grads());
    if (ctx.rank() > 0) continue;
    course.losses.push_back(result.loss);
    course.norms.push_back(result.grad_norm);
  }
  course.values.take(ctx, params, params.values());
  ctx.tape().reset();
}

// Two batches a step, by two data-parallel ranks or in two micro-steps.
void train(TinyRun run, const Layout& layout, Course& course, int shake = 0) {
  if (layout.data == 1) run.step.micro_steps *= 2;
  RankOptions o;
  o.threads = 1;
  o.seed = 11;
  run_thread_ranks(layout.data * layout.tensor, o, [&](RankContext& ctx, Communicator& all) {
    const Shaken held_up(ctx, shake);
    train(ctx, all, run, layout, course);
  });
}

// How far a run may be from `exact`, that of a single process in fp32: rounding, where the run is in fp32
// too; else twice as far as a single process is in the same precision.
struct Bounds {
  double loss = 1e-5, norm = 1e-4, grads[kSteps] = {2e-6, 1e-4, 1e-4}, values = 1e-4;
};

Bounds bounds_of(Precision precision, const Course& exact, const Course& single) {
  Bounds far;
  if (precision != Precision::fp32) far.loss = far.norm = 5e-3;  // one number may be right by chance
  for (std::size_t s = 0; s < kSteps; ++s) {
    far.loss = std::max(far.loss, 2 * std::abs(single.losses[s] - exact.losses[s]));
    far.norm = std::max(far.norm, 2 * std::abs(single.norms[s] / exact.norms[s] - 1));
    far.grads[s] = std::max(far.grads[s], 2 * distance(single.grads[s], exact.grads[s]));
  }
  far.values = std::max(far.values, 2 * distance(single.values, exact.values));
  return far;
}

class TensorParallelTraining : public testing::TestWithParam<Precision> {};

TEST_P(TensorParallelTraining, IsTheRunOfASingleProcess) {
  TinyRun run = tiny(GetParam()), in_fp32 = tiny(Precision::fp32);
  for (const bool tied : {false, true}) {
    run.model.tied = in_fp32.model.tied = tied;
    Course single, exact;
    train(run, {}, single);
    train(in_fp32, {}, exact);
    const Bounds far = bounds_of(GetParam(), exact, single);
    for (const Layout& layout : {Layout{1, 2}, Layout{1, 4}, Layout{2, 2, "ddp:bucketed"},
                                 Layout{2, 2, "zero2"}, Layout{2, 2, "fsdp"}}) {
      SCOPED_TRACE(cat(layout.data, " x ", layout.tensor, " ", layout.strategy, tied ? ", tied" : ""));
      for (int shake = 1; shake <= (tied ? 1 : 5); ++shake) {
        Course course;
        train(run, layout, course, shake);
        EXPECT_TRUE(course.first_values == single.first_values);  // to the bit
        ASSERT_EQ(course.losses.size(), exact.losses.size());
        for (std::size_t s = 0; s < kSteps; ++s) {
          EXPECT_NEAR(course.losses[s], exact.losses[s], far.loss);
          EXPECT_NEAR(course.norms[s] / exact.norms[s], 1, far.norm);
          EXPECT_TRUE(course.grads[s].complete());
          EXPECT_LT(distance(course.grads[s], exact.grads[s]), far.grads[s]) << "step " << s + 1;
        }
        EXPECT_TRUE(course.values.complete());
        EXPECT_LT(distance(course.values, exact.values), far.values);
        if (HasFailure()) return;
      }
    }
  }
}

// Whatever the timing.
TEST_P(TensorParallelTraining, EndsInTheSameBitsEveryTime) {
  const TinyRun run = tiny(GetParam());
  for (const Layout& layout : {Layout{1, 4}, Layout{2, 2, "ddp:overlap"}}) {
    Course still;
    train(run, layout, still, 0);
    for (int shake = 1; shake <= 5; ++shake) {
      Course shaken;
      train(run, layout, shaken, shake);
      EXPECT_TRUE(shaken.values == still.values && shaken.losses == still.losses &&
                  shaken.norms == still.norms);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TensorParallelTraining, testing::Values(Precision::fp32, Precision::bf16),
                         [](const auto& p) { return std::string(name_of(p.param)); });

TEST(TensorParallelStep, OtherPrecisionsAndRecomputationTrainToo) {
  for (const Precision precision : {Precision::autocast, Precision::fp16, Precision::pure_bf16}) {
    TinyRun run = tiny(precision);
    Course single, parts;
    train(run, {}, single);
    train(run, {1, 2}, parts);
    for (std::size_t s = 0; s < kSteps; ++s) EXPECT_NEAR(parts.losses[s], single.losses[s], 5e-3);
  }
  TinyRun run = tiny(Precision::fp32);
  Course kept;
  train(run, {1, 2}, kept);
  for (const Recompute& r : {Recompute::block, Recompute::every(2), Recompute::nested}) {
    run.model.recompute = r;
    Course again;
    train(run, {1, 2}, again);
    EXPECT_TRUE(again.values == kept.values) << name_of(r);
    EXPECT_EQ(again.losses, kept.losses);
  }
}

// The part of each matrix, whole norms: what a rank holds, and that it is known before.
TEST(TensorParallelStep, ARankHoldsItsPartAndItsMemoryIsPredicted) {
  const TinyRun run = tiny(Precision::fp32);
  const int64_t C = run.model.d_model, D = run.model.head_dim(), L = run.model.layers;
  for (const Layout& layout : {Layout{1, 2}, Layout{1, 4}, Layout{2, 2, "zero1"}, Layout{2, 2, "fsdp"}}) {
    RankOptions o;
    o.threads = 1;
    run_thread_ranks(layout.data * layout.tensor, o, [&](RankContext& ctx, Communicator& all) {
      MemoryRequest request{run.model, {}, run.step, false, layout.strategy, {}};
      MemoryStats taken;
      {
        ParallelRank place(ctx, all, layout.tensor, layout.strategy);
        Llama model(run.model, place.partition());
        request.layout = layout_for(run.precision, run.step, layout.data, place.strategy());
        request.layout.tensor_ranks = layout.tensor;
        model.params().materialize(ctx, request.layout);
        int64_t elements = 0;
        for (const Param& p : model.params().params()) elements += p.shape.numel();
        const int64_t n = layout.tensor;
        const int64_t layer = (run.model.heads + 2 * run.model.kv_heads) * D / n * C +
                              C * run.model.heads * D / n + 3 * run.model.d_ff / n * C + 2 * C;
        EXPECT_EQ(elements, L * layer + C + 2 * place.partition().of_vocab(run.model.vocab).count * C);
        place.strategy().attach(model.params());
        TrainStep step(ctx, model, place.strategy(), run.step);
        const TinyBatch b = tiny_batch(run, 0);
        const HostBatch view = b.host();
        for (int i = 0; i < 2; ++i) step.run({&view, 1}, run.lr);
        step.finish();
        taken = ctx.allocator().stats();
        ctx.tape().reset();
      }
      RankOptions mine = o;
      mine.rank = ctx.rank();
      mine.world = ctx.world();
      EXPECT_EQ(predict_memory(request, mine).peak_total, taken.peak_total);
    });
  }
}

// With clipping on: the norm counts what all ranks have once, so the factor is that of a single process.
TEST(TensorParallelStep, TheNormCountsAWeightThatAllHaveOnce) {
  TinyRun run = tiny(Precision::fp32);
  for (const Layout& layout :
       {Layout{1, 4}, Layout{2, 2, "zero1"}, Layout{2, 2, "zero2"}, Layout{2, 2, "fsdp"}}) {
    Course single, parts;
    train(run, {}, single);
    train(run, layout, parts);
    for (int s = 0; s < kSteps; ++s)
      EXPECT_NEAR(parts.norms[static_cast<std::size_t>(s)] / single.norms[static_cast<std::size_t>(s)], 1,
                  1e-6)  // 2e-8 is seen
          << layout.strategy;
  }
}

}  // namespace
}  // namespace kiln
