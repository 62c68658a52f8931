// A compiled model is the model: it learns what the ops learn, to rounding; its bits depend on neither
// threads, runs nor recompute; meta knows its memory; and every way to train takes it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "autograd/region.h"
#include "dist/comm/threads/thread_group.h"
#include "dist/strategy/fsdp.h"
#include "model/compile_check.h"
#include "perf/timing/op_times.h"
#include "support/tiny_run.h"
#include "train/presets.h"

namespace kiln {
namespace {

constexpr Precision kPrecisions[] = {Precision::fp32, Precision::bf16, Precision::autocast,
                                     Precision::pure_bf16, Precision::fp16};

RankOptions on(const Device& device, int threads = 1) {
  RankOptions o;
  o.device = device;
  o.threads = threads;
  return o;
}

TinyRun compiled_run(CompileMode mode, Precision precision = Precision::fp32) {
  TinyRun run;
  run.precision = precision;
  run.model.layers = 3;
  run.model.compile = mode;
  run.steps = 3;
  return run;
}

RankOptions with_preset(const char* preset, TinyRun& run, const Device& device = Device::cpu()) {
  RankOptions rank = on(device);
  const RunVariants chosen = choose_variants(preset, "", DeviceType::cpu);
  chosen.apply_to(run.model);
  rank.variants = chosen.ops;
  return rank;
}

TEST(CompiledModel, LearnsWhatTheOpsLearn) {
  for (const char* preset : {"optimized", "baseline"}) {
    for (const Precision precision : kPrecisions) {
      for (const CompileMode mode : {CompileMode::regions, CompileMode::model, CompileMode::automatic}) {
        TinyRun run = compiled_run(CompileMode::none, precision);
        const RankOptions rank = with_preset(preset, run);
        const TinyResult ops = train_tiny(rank, run);
        run.model.compile = mode;
        const TinyResult made = train_tiny(rank, run);
        const double allowed = precision == Precision::fp32 ? 2e-5 : 2e-2;
        for (std::size_t i = 0; i < ops.losses.size(); ++i)
          EXPECT_NEAR(made.losses[i], ops.losses[i], allowed * std::fabs(ops.losses[i]))
              << preset << " " << name_of(precision) << " " << name_of(mode) << " step " << i;
        EXPECT_NEAR(made.norms[0], ops.norms[0], 5 * allowed * ops.norms[0]) << preset << name_of(precision);
      }
    }
  }
}

TEST(CompiledModel, RunsAndThreadsEndInTheSameBits) {
  for (const Precision precision : kPrecisions) {
    const TinyRun run = compiled_run(CompileMode::model, precision);
    const TinyResult one = train_tiny(on(Device::cpu()), run);
    EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu()), run), one)) << name_of(precision);
    EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu(), 3), run), one)) << name_of(precision);
  }
}

TEST(CompiledModel, RecomputeEndsInTheSameBits) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::autocast}) {
    for (const char* text :
         {"block", "every:2", "plan:norms+swiglu", "plan:all", "plan:qkv+gate_up", "plan:out+mlp_norm"}) {
      TinyRun run = compiled_run(CompileMode::regions, precision);
      const TinyResult plain = train_tiny(on(Device::cpu()), run);
      run.model.recompute = parse_recompute("--recompute", text);
      EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu()), run), plain)) << text << " " << name_of(precision);
    }
    TinyRun nested = compiled_run(CompileMode::regions, precision);
    nested.model.recompute = Recompute::nested;
    EXPECT_EQ(train_tiny(on(Device::cpu()), nested).losses.size(), 3u);
  }
}

TEST(CompiledModel, MetaKnowsItsMemory) {
  for (const char* preset : {"optimized", "baseline"}) {
    for (const Precision precision : kPrecisions) {
      TinyRun run = compiled_run(CompileMode::model, precision);
      const MemoryStats real = train_tiny(with_preset(preset, run), run).memory;
      const MemoryStats meta = train_tiny(with_preset(preset, run, Device::meta()), run).memory;
      EXPECT_EQ(meta.peak_total, real.peak_total) << preset << name_of(precision);
      EXPECT_EQ(meta.peak[Tag::activation], real.peak[Tag::activation]) << preset << name_of(precision);
      EXPECT_EQ(meta.peak[Tag::workspace], real.peak[Tag::workspace]) << preset << name_of(precision);
    }
  }
}

// What is kept for backward is never more than the ops keep.
TEST(CompiledModel, KeepsNoMoreThanTheOps) {
  for (const char* preset : {"optimized", "baseline"}) {
    for (const Precision precision : {Precision::fp32, Precision::pure_bf16}) {
      TinyRun run = compiled_run(CompileMode::none, precision);
      run.model.d_model = 240;
      run.model.d_ff = 400;
      run.steps = 1;
      const RankOptions rank = with_preset(preset, run, Device::meta());
      const std::size_t ops = train_tiny(rank, run).memory.peak[Tag::activation];
      run.model.compile = CompileMode::model;
      EXPECT_LE(train_tiny(rank, run).memory.peak[Tag::activation], ops) << preset << name_of(precision);
    }
  }
}

TEST(CompiledModel, FullyShardedRanksTrainIt) {
  TinyRun run = compiled_run(CompileMode::regions);
  std::vector<double> losses[2];
  run_thread_ranks(2, on(Device::cpu()), [&](RankContext& ctx, Communicator& comm) {
    FsdpStrategy strategy(ctx, comm, {1});
    losses[ctx.rank()] = train_tiny(ctx, run, strategy).losses;
  });
  EXPECT_EQ(losses[0].size(), 3u);
  for (const double loss : losses[0]) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_LT(losses[0].back(), losses[0].front());
}

// Watchers see each region as one op, with its name, and fewer ops than the model has.
TEST(CompiledModel, WatchersSeeTheRegions) {
  TinyRun run = compiled_run(CompileMode::none);
  run.steps = 1;
  const auto ops_of = [&](CompileMode mode) {
    run.model.compile = mode;
    RankContext ctx(with_preset("baseline", run, Device::meta()));
    const OpTimes ops(ctx);
    Strategy plain;
    train_tiny(ctx, run, plain);
    return ops.take();
  };
  const std::vector<TimedOp> eager = ops_of(CompileMode::none), made = ops_of(CompileMode::model);
  EXPECT_LT(made.size(), eager.size() * 3 / 4);
  std::map<std::string, int> regions;
  double bytes = 0, eager_bytes = 0;
  for (const TimedOp& op : made) {
    if (op.op == "compiled") ++regions[std::string(op.variant)];
    bytes += op.cost.bytes;
  }
  for (const TimedOp& op : eager) eager_bytes += op.cost.bytes;
  const std::map<std::string, int> expected = {{"rms_norm", 2}, {"add+rms_norm", 12},  {"rope", 6},
                                               {"swiglu", 6},   {"masked_softmax", 6}, {"cross_entropy", 2}};
  EXPECT_EQ(regions, expected);
  EXPECT_LT(bytes, eager_bytes);
}

TEST(CompiledModel, ADeviceThatCannotSaysSo) {
  ModelConfig c;
  c.compile = CompileMode::regions;
  EXPECT_NO_THROW(check_compile(c, Device::cpu()));
  const Device gpu = Device::meta(DeviceType::cuda);
  EXPECT_THROW(check_compile(c, gpu), Error);
  c.compile = CompileMode::automatic;
  EXPECT_NO_THROW(check_compile(c, gpu));
  EXPECT_NE(compile_note(c, gpu).find("--compile auto"), std::string::npos);
  EXPECT_EQ(compile_note(c, Device::cpu()), "");
  RankContext ctx(on(gpu));
  EXPECT_THROW(compiled(ctx, {"none", {}, {}}, {}), Error);
}

TEST(CompileMode, NamesAreReadBack) {
  for (const std::string_view name : compile_mode_names())
    EXPECT_EQ(name_of(parse_compile("--compile", name)), name);
  EXPECT_THROW(parse_compile("--compile", "region"), Error);
}

}  // namespace
}  // namespace kiln
