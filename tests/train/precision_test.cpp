// Every precision policy trains, resumes, and ends in the same bits however it is run; and each goes wrong in
// its own way only. fp16's loss scale: loss_scale_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "dist/comm/threads/thread_group.h"
#include "ops/cpu_rows.h"
#include "train/seams.h"
#include "train/trainer.h"

namespace kiln {
namespace {

constexpr Precision kPolicies[] = {Precision::fp32, Precision::bf16, Precision::autocast,
                                   Precision::pure_bf16, Precision::fp16};

TinyRun with(Precision precision) {
  TinyRun run;
  run.precision = precision;
  run.model.layers = 2;
  return run;
}

std::vector<double> numbers(RankContext& ctx, const Tensor& t) {
  std::vector<double> v(static_cast<std::size_t>(t.numel()));
  const auto bytes = fetch_bytes(ctx, t);
  with_float(t.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = static_cast<double>(widen(reinterpret_cast<const T*>(bytes.data())[i]));
  });
  return v;
}

TEST(TrainingPrecision, EveryPolicyLearns) {
  for (Precision p : kPolicies) {
    TinyRun run = with(p);
    run.model.layers = 1;
    run.steps = 30;
    const TinyResult r = train_tiny(on(Device::cpu()), run);
    EXPECT_NEAR(r.losses.front(), std::log(61.0), 1.5) << name_of(p);
    EXPECT_LT(r.losses.back(), 0.75 * r.losses.front()) << name_of(p);
  }
}

// All parameters' gradients after one step, in the order of execution.
std::vector<double> first_gradients(Precision precision, int micro_steps) {
  TinyRun run = with(precision);
  run.step.micro_steps = micro_steps;
  Trainer t(run, Device::cpu(), layout_for(precision, run.step));
  t.train(0);
  const double unscale = t.step->finish().unscale;
  std::vector<double> all;
  for (const Param& p : t.model.params().params()) {
    for (double g : numbers(t.ctx, p.grad)) all.push_back(g * unscale);
  }
  return all;
}

TEST(TrainingPrecision, GradientsAreCloseToFp32s) {
  for (int micro_steps : {1, 2}) {
    const std::vector<double> wide = first_gradients(Precision::fp32, micro_steps);
    for (Precision p : kPolicies) {
      const std::vector<double> g = first_gradients(p, micro_steps);
      ASSERT_EQ(g.size(), wide.size());
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < g.size(); ++i) {
        difference += (g[i] - wide[i]) * (g[i] - wide[i]);
        norm += wide[i] * wide[i];
      }
      const double bound = p == Precision::fp32 ? 0 : p == Precision::fp16 ? 5e-3 : 3e-2;
      EXPECT_LE(std::sqrt(difference / norm), bound) << name_of(p) << " " << micro_steps;
      if (p != Precision::fp32) {
        EXPECT_GT(difference, 0) << name_of(p);
      }
    }
  }
}

TEST(TrainingPrecision, ThreadsRecomputeAndRepetitionChangeNoBit) {
  for (Precision p : kPolicies) {
    TinyRun run = with(p);
    run.model.layers = 3;
    run.steps = 3;
    const TinyResult plain = train_tiny(on(Device::cpu()), run);
    EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu()), run), plain)) << name_of(p);
    EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu(), 3), run), plain)) << name_of(p);
    for (const Recompute& r : {Recompute::block, Recompute::every(2), Recompute::nested}) {
      run.model.recompute = r;
      EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu()), run), plain)) << name_of(p) << " " << name_of(r);
    }
  }
}

// What a checkpoint holds: values, low halves, moments, and the step's record.
TEST(TrainingPrecision, EveryPolicyResumesToTheSameBits) {
  for (Precision p : kPolicies) {
    for (int micro_steps : {1, 2}) {
      TinyRun run = with(p);
      run.step.micro_steps = micro_steps;
      run.step.loss_scale = {.initial = 1 << 14, .interval = 2};  // grows on both sides of the break
      const ParamLayout layout = layout_for(p, run.step);
      auto buffers = [](Trainer& t) {
        return std::vector<Tensor>{t.model.params().values(), t.model.params().low(),
                                   t.step->optimizer().state("m"), t.step->optimizer().state("v"),
                                   t.step->scalars()};
      };
      Trainer straight(run, Device::cpu(), layout), first(run, Device::cpu(), layout);
      for (int s = 0; s < 6; ++s) straight.train(s);
      for (int s = 0; s < 3; ++s) first.train(s);
      const StepScalars wanted = straight.step->finish();
      (void)first.step->finish();
      Trainer second(run, Device::cpu(), layout);
      const auto from = buffers(first), to = buffers(second);
      for (std::size_t i = 0; i < from.size(); ++i) {
        if (from[i].defined()) second.ctx.upload(to[i], fetch_bytes(first.ctx, from[i]).data());
      }
      for (int s = 3; s < 6; ++s) second.train(s);
      const StepScalars got = second.step->finish();
      EXPECT_EQ(got.loss, wanted.loss) << name_of(p);
      EXPECT_EQ(got.step, wanted.step);
      EXPECT_EQ(got.loss_scale, wanted.loss_scale);
      EXPECT_EQ(got.good_steps, wanted.good_steps);
      const auto a = buffers(straight), b = buffers(second);
      for (std::size_t i = 0; i + 1 < a.size(); ++i)
        EXPECT_EQ(fetch_bytes(straight.ctx, a[i]), fetch_bytes(second.ctx, b[i])) << name_of(p) << " " << i;
    }
  }
}

TEST(TrainingPrecision, TwoRanksFollowOne) {
  for (Precision p : {Precision::autocast, Precision::pure_bf16, Precision::fp16}) {
    TinyRun run = with(p);
    // The bound below was found with these constants; with those of a short run two ranks end 1.2e-3 apart.
    run.step.optimizer.adamw = {.beta2 = 0.999, .decay = 0.01};
    TinyRun single = run;
    single.step.micro_steps = 2;
    const TinyResult reference = train_tiny(on(Device::cpu()), single);
    for (const MakeStrategy& make : {MakeStrategy(make_ddp), MakeStrategy(make_fsdp)}) {
      std::vector<TinyResult> ranks(2);
      run_thread_ranks(2, on(Device::cpu()), [&](RankContext& ctx, Communicator& comm) {
        const auto strategy = make(ctx, comm);
        ranks[ctx.rank()] = train_tiny(ctx, run, *strategy);
      });
      EXPECT_EQ(ranks[0].losses, ranks[1].losses);
      EXPECT_NEAR(ranks[0].losses.front(), reference.losses.front(), 1e-5) << name_of(p);
      EXPECT_NEAR(ranks[0].losses.back(), reference.losses.back(), 1e-3) << name_of(p);  // 1.3e-4 is seen
    }
  }
}

// One micro-step on one rank keeps bf16 gradients with bf16 weights, anything else fp32.
TEST(TrainingPrecision, GradientsAreNarrowWhereNothingAccumulates) {
  StepOptions one, two;
  two.micro_steps = 2;
  EXPECT_TRUE(layout_for(Precision::bf16, one).narrow_grads);
  EXPECT_FALSE(layout_for(Precision::bf16, two).narrow_grads);
  EXPECT_FALSE(layout_for(Precision::bf16, one, 2).narrow_grads);
  const TinyRun run = with(Precision::bf16);
  Trainer narrow(run, Device::cpu(), layout_for(Precision::bf16, run.step)), wide(run);
  EXPECT_EQ(narrow.model.params().grads().dtype(), DType::bf16);
  EXPECT_EQ(wide.model.params().grads().dtype(), DType::f32);
  for (Trainer* t : {&narrow, &wide}) t->train(0);
  const double a = narrow.step->finish().grad_norm, b = wide.step->finish().grad_norm;
  EXPECT_NE(a, b);
  EXPECT_NEAR(a / b, 1, 1e-5);  // 6e-7 is seen: the narrow ones' sum has as many errors up as down
}

// The known fault of pure-bf16: a step below half the spacing of a weight is rounded away. With the low
// halves of `bf16` the same steps add up.
TEST(TrainingPrecision, PureBf16LosesSmallUpdatesAndBf16DoesNot) {
  for (Precision p : {Precision::pure_bf16, Precision::bf16}) {
    TinyRun run = with(p);
    run.lr = 1e-4;
    run.step.optimizer.adamw.decay = 0;
    Trainer t(run);
    const Param& norm = t.model.params().params()[1];  // ones, whose spacing is 2^-8 below and 2^-7 above
    ASSERT_EQ(norm.name, "model.layers.0.input_layernorm.weight");
    const std::vector<std::byte> before = fetch_bytes(t.ctx, norm.value);
    const Tensor low = t.model.params().low();
    for (int s = 0; s < 12; ++s) t.train(s);
    t.step->finish();
    EXPECT_EQ(fetch_bytes(t.ctx, norm.value), before) << "12 steps of 1e-4 are below half of 2^-8";
    if (!low.defined()) continue;
    int64_t moved = 0;
    for (int64_t i = 0; i < norm.shape.numel(); ++i) moved += low.data<int16_t>()[norm.offset + i] != 0;
    EXPECT_EQ(moved, norm.shape.numel());
  }
}

// Autocast keeps the residual stream and the norms in fp32 and runs matmuls and attention in bf16.
TEST(TrainingPrecision, AutocastCastsWhatItSays) {
  class Dtypes final : public OpObserver {
   public:
    void on_op_end(RankContext&, const OpEvent& e) override {
      if (e.pass != Pass::forward || e.outputs.empty() || e.scope.find("layers.0") == std::string_view::npos)
        return;
      const DType seen = e.outputs[0].tensor.dtype();
      const bool wide = e.op == "rms_norm" || e.op == "add_rms_norm" || e.op == "add";
      if (e.op == "cast") {
        ++casts;
      } else {
        EXPECT_EQ(seen, wide ? DType::f32 : DType::bf16) << e.op;
      }
    }
    int casts = 0;
  };
  Trainer t(with(Precision::autocast));
  Dtypes dtypes;
  t.ctx.add_observer(&dtypes);
  t.train(0);
  t.step->finish();
  t.ctx.remove_observer(&dtypes);
  EXPECT_EQ(dtypes.casts, 2 * 2 + 2 * 4);  // each half in and out, and four weights there and back
}

}  // namespace
}  // namespace kiln
