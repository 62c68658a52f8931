// What fully sharded training keeps: 1/world of the matrices, the norms whole, and slots that do not grow.
#include <gtest/gtest.h>

#include <algorithm>

#include "autograd/tape.h"
#include "dist/comm/threads/thread_group.h"
#include "dist/strategy/fsdp.h"
#include "model/size_registry.h"
#include "support/fsdp_runs.h"
#include "train/memory_prediction.h"

namespace kiln {
namespace {

RankOptions on(const Device& device) {
  RankOptions o;
  o.device = device;
  o.threads = 1;
  o.seed = 3;
  o.alloc_mode = AllocMode::raw;  // exact: a pool would round up
  return o;
}

TinyRun run_of(Precision precision) {
  TinyRun run;
  run.precision = precision;
  run.model.vocab = 1031;
  run.model.d_model = 192;
  run.model.d_ff = 515;
  run.model.layers = 3;
  return run;
}

struct Theory {
  double weights, gradients, moments;  // bytes of a rank
  double all() const { return weights + gradients + moments; }
};

Theory theory(const ModelConfig& model, Precision precision, int world) {
  const ParamGroups groups = count_params(model);
  const double elements =
      static_cast<double>(groups.total() - groups.norms) / world + static_cast<double>(groups.norms);
  const PrecisionPolicy p = policy_of(precision);
  return {elements * static_cast<double>(size_of(p.value) + (p.split ? 2 : 0)),
          elements * static_cast<double>(size_of(p.grad)),
          elements * 2.0 * static_cast<double>(size_of(p.state))};
}

double kept(const MemoryStats& m) {
  return static_cast<double>(m.peak[Tag::param] + m.peak[Tag::master] + m.peak[Tag::grad] +
                             m.peak[Tag::optim]);
}

MemoryStats train(RankContext& ctx, Communicator& comm, const TinyRun& run, int prefetch) {
  FsdpStrategy strategy(ctx, comm, {prefetch});
  train_tiny(ctx, run, strategy);
  return ctx.allocator().stats();
}

class FsdpMemory : public testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, FsdpMemory, testing::Values(Precision::fp32, Precision::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(FsdpMemory, IsWithinTwoPercentOfTheoryOnThreadsAndMeta) {
  for (int world : {2, 4, 8}) {
    const TinyRun run = run_of(GetParam());
    const Theory expected = theory(run.model, GetParam(), world);
    std::vector<MemoryStats> real(world), meta(world);
    run_thread_ranks(world, on(Device::cpu()), [&](RankContext& ctx, Communicator& comm) {
      real[ctx.rank()] = train(ctx, comm, run, 1);
    });
    run_thread_ranks(world, on(Device::meta()), [&](RankContext& ctx, Communicator& comm) {
      meta[ctx.rank()] = train(ctx, comm, run, 1);
    });
    for (int r = 0; r < world; ++r) {
      EXPECT_NEAR(kept(real[r]) / expected.all(), 1, 0.02) << world << " ranks";
      EXPECT_NEAR(static_cast<double>(real[r].peak[Tag::grad]) / expected.gradients, 1, 0.02);
      EXPECT_NEAR(static_cast<double>(real[r].peak[Tag::optim]) / expected.moments, 1, 0.02);
      for (int t = 0; t < kTagCount; ++t)
        EXPECT_EQ(real[r].peak.values[t], meta[r].peak.values[t]) << name_of(static_cast<Tag>(t));
      EXPECT_EQ(real[r].peak_total, meta[r].peak_total);
    }
  }
}

// A real size, which needs no memory here.
TEST(FsdpMemoryOf, OfALargeModelIsWithinTwoPercentToo) {
  MemoryRequest request;
  request.model = config_of(find_model_size("xl25"));
  request.step.batch = 1;
  request.step.context = 128;
  request.strategy = "fsdp";
  for (Precision precision : {Precision::fp32, Precision::bf16}) {
    for (int world : {2, 4, 8}) {
      RankOptions rank;
      rank.world = world;
      rank.rank = world - 1;
      request.layout = layout_for(precision, request.step, world, true);
      const MemoryStats stats = predict_memory(request, rank);
      EXPECT_NEAR(kept(stats) / theory(request.model, precision, world).all(), 1, 0.02) << world << " ranks";
    }
  }
}

// k+1 slots of the largest weight; besides them no more than k+1 whole gradients, as many parts of one to be
// added, and the communicator's own scratch, whatever the number of layers.
TEST(FsdpMemoryOf, SlotsAreBoundedByPrefetchAndNotByLayers) {
  for (int prefetch : {0, 1, 2}) {
    std::vector<std::size_t> peaks;
    for (int64_t layers : {2, 6}) {
      TinyRun run = run_of(Precision::fp32);
      run.model.layers = layers;
      run.step.micro_steps = 2;
      std::size_t largest = 0, peak = 0;
      run_thread_ranks(2, on(Device::meta()), [&](RankContext& ctx, Communicator& comm) {
        const MemoryStats m = train(ctx, comm, run, prefetch);
        if (ctx.rank() != 0) return;
        Llama model(run.model);
        model.params().materialize(ctx, {Precision::fp32, true});
        for (const Param& p : model.params().params())
          largest = std::max(largest, static_cast<std::size_t>(p.padded) * 4);
        peak = m.peak[Tag::comm];
      });
      const auto slots = static_cast<std::size_t>(prefetch) + 1;
      EXPECT_GE(peak, slots * largest);
      EXPECT_LE(peak, slots * largest * 5 / 2 + largest);
      peaks.push_back(peak);
    }
    EXPECT_EQ(peaks[0], peaks[1]) << "prefetch " << prefetch;
  }
}

TEST(FsdpMemoryOf, IsPredictedToTheByte) {
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    for (const auto& [micro_steps, recompute, prefetch] :
         {std::tuple(1, Recompute::none, 1), std::tuple(3, Recompute::block, 2),
          std::tuple(2, Recompute::none, 0)}) {
      TinyRun run = run_of(precision);
      run.step.micro_steps = micro_steps;
      run.model.recompute = recompute;
      run.steps = 4;
      const int world = 3, k = prefetch;
      RankOptions rank;
      rank.threads = 1;
      MemoryRequest request;
      request.model = run.model;
      request.layout = layout_for(precision, run.step, world, true);
      request.step = run.step;
      request.strategy = "fsdp";
      request.sharing.prefetch = k;
      std::vector<MemoryStats> real(world);
      run_thread_ranks(world, rank, [&](RankContext& ctx, Communicator& comm) {
        real[ctx.rank()] = train(ctx, comm, run, k);
      });
      for (int r = 0; r < world; ++r) {
        RankOptions mine = rank;
        mine.rank = r;
        mine.world = world;
        const MemoryStats predicted = predict_memory(request, mine);
        for (int t = 0; t < kTagCount; ++t)
          EXPECT_EQ(real[r].peak.values[t], predicted.peak.values[t])
              << name_of(precision) << " rank " << r << " " << name_of(static_cast<Tag>(t));
        EXPECT_EQ(real[r].peak_total, predicted.peak_total);
      }
    }
  }
}

}  // namespace
}  // namespace kiln
