// Steps whose numbers are not finite: which batch a replay runs, what it blames, and what later calls say.
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "dist/comm/threads/thread_group.h"
#include "train/seams.h"
#include "train/trainer.h"

namespace kiln {
namespace {

// Each micro-step of each step in turn brings a token that is not in the vocabulary: only the replay of that
// very batch finds it.
TEST(BadStep, AReplayRunsTheBatchesOfTheBadStep) {
  TinyRun run;
  run.step.micro_steps = 3;
  for (int bad_step : {1, 2, 3, 4}) {
    for (int bad_micro : {0, 1, 2}) {
      for (bool late : {false, true}) {  // found by finish(), or by the step after
        Trainer t(run);
        for (int s = 1; s < bad_step; ++s) t.train(s);
        const auto weights = t.weights();
        auto batches = t.batches(bad_step);
        batches[bad_micro].tokens[5] = 61;
        t.train(batches, run.lr);
        const std::string said =
            complaint([&] { late ? (void)t.train(bad_step + 1) : (void)t.step->finish(); });
        EXPECT_EQ(said.find(cat("step ", bad_step, " is not finite: [embedding]")), 0u) << said;
        EXPECT_NE(said.find("element 120"), std::string::npos) << said;  // token 5 of 24 columns
        EXPECT_EQ(t.weights(), weights);
        EXPECT_TRUE(t.ctx.observers().empty()) << "the finder is still attached";
        EXPECT_EQ(t.ctx.tape().size(), 0) << "the replay's activations are still held";
      }
    }
  }
}

// A NaN that only a weight's gradient has: the second output of its op.
TEST(BadStep, ANanInAWeightsGradientAloneIsNamed) {
  class Planter final : public OpObserver {
    void on_op_end(RankContext&, const OpEvent& e) override {
      if (e.op == "add_rms_norm" && e.pass == Pass::backward && e.scope == "layers.0.mlp")
        e.outputs[1].tensor.data<float>()[3] = std::numeric_limits<float>::infinity();
    }
  };
  Trainer t{TinyRun()};
  Planter planter;
  t.ctx.add_observer(&planter);
  t.train(0);
  EXPECT_EQ(complaint([&] { t.step->finish(); }),
            "step 1 is not finite: [add_rms_norm] fused backward in layers.0.mlp: output 'dweight' [24] "
            "holds inf at "
            "element 3");
  EXPECT_EQ(t.ctx.tape().size(), 0) << "the replay's activations are still held";
}

// The ring holds the last three batches: a second replay would run another one.
TEST(BadStep, EveryLaterCallSaysTheSame) {
  Trainer t{TinyRun()};
  t.train(0);
  const auto weights = t.weights();
  auto batches = t.batches(1);
  batches[0].tokens[5] = 61;
  t.train(batches, t.run.lr);
  const std::string said = complaint([&] { t.train(2); });
  EXPECT_EQ(said.find("step 2 is not finite: [embedding]"), 0u) << said;
  const int64_t allocations = t.ctx.allocator().allocation_count();
  for (int s = 3; s < 8; ++s) EXPECT_EQ(complaint([&] { t.train(s); }), said);
  EXPECT_EQ(complaint([&] { t.step->finish(); }), said);
  EXPECT_EQ(t.ctx.allocator().allocation_count(), allocations) << "a step was queued that cannot count";
  EXPECT_EQ(t.weights(), weights);
}

// Overwrites one element of a weight's gradient wherever it is computed.
class GradientPlanter final : public OpObserver {
 public:
  explicit GradientPlanter(float value) : value_(value) {}
  void on_op_end(RankContext&, const OpEvent& e) override {
    if (e.op == "add_rms_norm" && e.pass == Pass::backward && e.scope == "layers.0.mlp")
      e.outputs[1].tensor.data<float>()[3] = value_;
  }

 private:
  float value_;
};

struct Said {
  std::string what, hint;
};

// What each of two ranks says of its first step when it brings `values[rank]` to the sum.
std::array<Said, 2> two_ranks_say(const MakeStrategy& make, std::array<float, 2> values) {
  std::array<Said, 2> said;
  const TinyRun run;
  run_thread_ranks(2, on(Device::cpu()), [&](RankContext& ctx, Communicator& comm) {
    const auto strategy = make(ctx, comm);
    Llama model(run.model);
    model.params().materialize(ctx, {run.precision, strategy->shards_params()});
    strategy->attach(model.params());
    TrainStep step(ctx, model, *strategy, run.step);
    GradientPlanter planter(values[ctx.rank()]);
    ctx.add_observer(&planter);
    const TinyBatch batch = tiny_batch(run, ctx.rank());
    const HostBatch view = batch.host();
    step.run({&view, 1}, run.lr);
    try {
      step.finish();
    } catch (const Error& e) {
      said[ctx.rank()] = {e.what(), e.hint()};
    }
    ctx.tape().reset();
  });
  return said;
}

TEST(BadStep, ASumOverRanksThatOverflowsIsNotBlamedOnTheHardware) {
  const float large = 0.9f * std::numeric_limits<float>::max();
  for (const auto& s : two_ranks_say(make_ddp, {large, large})) {
    EXPECT_EQ(
        s.what,
        "step 1 is not finite: every op on this rank was finite, the sum over ranks was not: loss " +
            s.what.substr(s.what.find("loss ") + 5, s.what.find(", sum of") - s.what.find("loss ") - 5) +
            ", sum of squared gradients inf; the gradient of model.layers.0.post_attention_layernorm.weight "
            "holds inf at element 3");
    EXPECT_NE(s.hint.find("lower the learning rate"), std::string::npos) << s.hint;
  }
  const auto sharded = two_ranks_say(make_fsdp, {large, large});  // a norm's weight is whole on both
  for (const auto& s : sharded) {
    EXPECT_NE(s.what.find("every op on this rank was finite, the sum over ranks was not"), std::string::npos)
        << s.what;
    EXPECT_EQ(s.what.find("hardware"), std::string::npos) << s.what;
    EXPECT_NE(s.what.find("holds inf at element 3"), std::string::npos) << s.what;
  }
}

// Finite when run again: the planted value is only in the first run.
TEST(BadStep, AStepThatIsFiniteWhenRunAgainIsBlamedOnTheHardware) {
  class Once final : public OpObserver {
    void on_op_end(RankContext&, const OpEvent& e) override {
      if (e.op != "rms_norm" || e.pass != Pass::backward || done_) return;
      e.outputs[1].tensor.data<float>()[3] = std::numeric_limits<float>::infinity();
      done_ = true;
    }
    bool done_ = false;
  };
  Trainer t{TinyRun()};
  Once planter;
  t.ctx.add_observer(&planter);
  t.train(0);
  EXPECT_EQ(complaint([&] { t.step->finish(); }),
            "step 1 is not finite: the step was finite when run again: suspect the hardware");
}

}  // namespace
}  // namespace kiln
