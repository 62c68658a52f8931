// Fully sharded training: whatever the number of ranks, prefetch, recomputation and timing, the same bits.
#include "dist/strategy/fsdp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "autograd/tape.h"
#include "dist/comm/threads/thread_group.h"
#include "dist/strategy/ddp.h"
#include "dist/strategy/gather_full.h"
#include "model/llama.h"
#include "ops/cast/cast.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/unary.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "optim/sgd_optimizer.h"
#include "support/fsdp_runs.h"
#include "train/seams.h"

namespace kiln {
namespace {

// --- the toy of two linear layers, SGD ---------------------------------------------------------------------

constexpr int64_t kVocab = 100, kWidth = 64, kHidden = 128, kBatch = 20, kSeq = 8;

struct Toy {
  Toy(RankContext& ctx, Precision precision, bool sharded) {
    embed = &store.add("embed", {kVocab, kWidth}, {ParamInit::Kind::normal, 1, 3});
    up = &store.add("up", {kHidden, kWidth}, {ParamInit::Kind::normal, 0.1f, 3});
    down = &store.add("down", {kWidth, kHidden}, {ParamInit::Kind::normal, 0.1f, 3});
    norm = &store.add("norm", {kWidth}, {ParamInit::Kind::ones, 0, 0}, false);
    head = &store.add("head", {kVocab, kWidth}, {ParamInit::Kind::normal, 0.1f, 3});
    store.materialize(ctx, {.precision = precision, .sharded = sharded});
  }
  Tensor loss(RankContext& ctx, const Tensor& tokens, const Tensor& targets) const {
    const Tensor x = embedding(ctx, tokens, *embed);
    const Tensor h = linear(ctx, relu(ctx, linear(ctx, cast_for(ctx, x, *up), *up)), *down);
    const Tensor y = rms_norm(ctx, cast(ctx, h, x.dtype()), *norm, 1e-5f);
    return cross_entropy(ctx, linear(ctx, cast_for(ctx, y, *head), *head), targets);
  }
  ParamStore store;
  Param *embed, *up, *down, *norm, *head;
};

struct ToyResult {
  StateBytes weights;
  StateBytes grad_bytes;
};

// Three steps on chunks [first, first + chunks) of the two halves of the batch.
ToyResult train_toy(RankContext& ctx, Communicator& comm, Precision precision, Strategy& strategy, int first,
                    int chunks) {
  Toy toy(ctx, precision, strategy.shards_params());
  strategy.attach(toy.store);
  SgdOptimizer sgd(ctx, toy.store.spans(), {.momentum = 0, .decay = 0});
  const Tensor scalars = make_step_scalars(ctx);
  StepScalars record;
  record.lr = 0.01;
  ctx.upload(scalars, &record);
  const Tensor tokens = ctx.empty({kBatch / 2, kSeq}, DType::i32),
               targets = ctx.empty({kBatch / 2, kSeq}, DType::i32);
  for (int step = 0; step < 3; ++step) {
    toy.store.begin_step();
    strategy.begin_step();
    for (int c = 0; c < chunks; ++c) {
      strategy.begin_micro_step(c + 1 == chunks);
      std::vector<int32_t> ids(kBatch / 2 * kSeq), next(ids.size());
      for (std::size_t i = 0; i < ids.size(); ++i) {
        ids[i] =
            static_cast<int32_t>((i * 31 + static_cast<std::size_t>(step * 7 + (first + c) * 13)) % kVocab);
        next[i] = (ids[i] * 3 + 1) % static_cast<int32_t>(kVocab);
      }
      ctx.upload(tokens, ids.data());
      ctx.upload(targets, next.data());
      ctx.tape().reset();
      const Tensor loss = toy.loss(ctx, tokens, targets);
      const Tensor half = ctx.empty({1}, loss.dtype());
      const float share = 0.5f;
      ctx.upload(half, &share);
      ctx.tape().backward(loss, half);
    }
    ctx.tape().reset();
    toy.store.finish_gradients(ctx);
    strategy.finish_gradients();
    sgd.step(ctx, scalars);
  }
  ToyResult result;
  result.weights = whole_state(ctx, comm, toy.store, nullptr);
  for (const Param& p : toy.store.params()) {
    const Tensor g = gather_whole(ctx, comm, p, toy.store.local_grad(p));
    EXPECT_EQ(g.shape(), p.shape);
    EXPECT_EQ(g.dtype(), DType::f32);
    result.grad_bytes[p.name] = fetch_bytes(ctx, g);
  }
  return result;
}

ToyResult train_toy_alone(Precision precision) {
  ToyResult result;
  run_thread_ranks(1, one_thread(), [&](RankContext& ctx, Communicator& comm) {
    Strategy plain;
    result = train_toy(ctx, comm, precision, plain, 0, 2);  // both halves, added in the order of the ranks
  });
  return result;
}

std::vector<ToyResult> train_toy_sharded(Precision precision, int prefetch, uint64_t jitter) {
  std::vector<ToyResult> ranks(2);
  run_thread_ranks(2, one_thread(), [&](RankContext& ctx, Communicator& comm) {
    const Jitter noise(ctx, jitter);
    FsdpStrategy strategy(ctx, comm, {prefetch});
    ranks[ctx.rank()] = train_toy(ctx, comm, precision, strategy, ctx.rank(), 1);
  });
  return ranks;
}

double largest_difference(const StateBytes& a, const StateBytes& b) {
  double most = 0;
  for (const auto& [name, bytes] : a) {
    for (std::size_t i = 0; i < bytes.size(); i += 4) {
      float x, y;
      std::memcpy(&x, bytes.data() + i, 4);
      std::memcpy(&y, b.at(name).data() + i, 4);
      most = std::max(most, static_cast<double>(std::abs(x - y)));
    }
  }
  return most;
}

TEST(FsdpToy, TwoRanksEndInTheBitsOfOneProcess) {
  const ToyResult alone = train_toy_alone(Precision::fp32);
  for (uint64_t repeat = 1; repeat <= 5; ++repeat) {
    for (int prefetch : {0, 1, 2}) {
      const auto ranks = train_toy_sharded(Precision::fp32, prefetch, repeat);
      for (const ToyResult& r : ranks) {
        EXPECT_EQ(r.weights, alone.weights) << "prefetch " << prefetch;
        EXPECT_EQ(r.grad_bytes, alone.grad_bytes) << "prefetch " << prefetch;
      }
    }
  }
}

TEST(FsdpToy, HalfPrecisionInCollectivesIsThatOfTheMatmuls) {
  const ToyResult wide = train_toy_alone(Precision::fp32);
  for (Precision precision : {Precision::fp16, Precision::autocast}) {
    const ToyResult alone = train_toy_alone(precision);
    for (int prefetch : {0, 1}) {
      const auto ranks = train_toy_sharded(precision, prefetch, 1);
      // Cast and then gathered is gathered and then cast.
      EXPECT_EQ(ranks[0].weights, alone.weights) << name_of(precision);
      EXPECT_EQ(ranks[1].weights, alone.weights) << name_of(precision);
      if (precision == Precision::fp16) {
        EXPECT_LT(largest_difference(ranks[0].weights, wide.weights), 1e-4);
      }
    }
  }
}

TEST(FsdpToy, WholeGradientsAreTheSameOnAllRanks) {
  std::vector<std::vector<std::byte>> norms(2);
  run_thread_ranks(2, one_thread(), [&](RankContext& ctx, Communicator& comm) {
    FsdpStrategy strategy(ctx, comm);
    Toy toy(ctx, Precision::fp32, true);
    EXPECT_EQ(toy.norm->shards, 1);
    for (Param* p : {toy.embed, toy.up, toy.down, toy.head}) {
      EXPECT_EQ(p->shards, 2) << p->name;
      EXPECT_EQ(toy.store.local_grad(*p).numel(), p->padded / 2);
      EXPECT_EQ(toy.store.local_grad(*p).dtype(), DType::f32);
    }
    strategy.attach(toy.store);
    toy.store.begin_step();
    strategy.begin_step();
    strategy.begin_micro_step(true);
    std::vector<int32_t> ids(16, 3 + ctx.rank());
    const Tensor tokens = ctx.empty({2, 8}, DType::i32), one = ctx.empty({1}, DType::f32);
    const float share = 1;
    ctx.upload(tokens, ids.data());
    ctx.upload(one, &share);
    ctx.tape().backward(toy.loss(ctx, tokens, tokens), one);
    toy.store.finish_gradients(ctx);
    const auto own = fetch_bytes(ctx, toy.store.local_grad(*toy.norm));
    strategy.finish_gradients();
    norms[ctx.rank()] = fetch_bytes(ctx, toy.store.local_grad(*toy.norm));
    EXPECT_NE(own, norms[ctx.rank()]);  // the other rank's is in it
    ctx.tape().reset();
  });
  EXPECT_EQ(norms[0], norms[1]);
}

// --- the tiny LLaMA ----------------------------------------------------------------------------------------

TinyRun tiny(Precision precision, int micro_steps, Recompute recompute = Recompute::none) {
  TinyRun run;
  run.precision = precision;
  run.model.layers = 2;
  run.model.recompute = recompute;
  run.step.micro_steps = micro_steps;
  run.steps = 3;
  return run;
}

class FsdpOf : public testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, FsdpOf,
                         testing::Values(Precision::fp32, Precision::bf16, Precision::fp16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(FsdpOf, PrefetchAndRecomputeChangeNoBit) {
  for (int world : {2, 3, 4}) {
    for (int micro_steps : {1, 3}) {
      const RanksResult first = train_ranks(world, tiny(GetParam(), micro_steps), fsdp(0));
      for (int prefetch : {0, 1, 2}) {
        for (const char* text : {"none", "block", "plan:all*1,norms+out+gate_up"}) {
          const Recompute r = parse_recompute("--recompute", text);
          const RanksResult again = train_ranks(world, tiny(GetParam(), micro_steps, r), fsdp(prefetch), 1);
          EXPECT_EQ(again.state, first.state)
              << world << " ranks, prefetch " << prefetch << ", " << name_of(r);
          EXPECT_EQ(again.losses, first.losses);
        }
      }
    }
  }
}

TEST_P(FsdpOf, EqualsDataParallelOfTheSameRanks) {
  for (int world : {2, 3, 4}) {
    const TinyRun run = tiny(GetParam(), 1);
    const RanksResult ddp = train_ranks(world, run, make_ddp), sharded = train_ranks(world, run, fsdp(1));
    EXPECT_EQ(sharded.state, ddp.state) << world << " ranks";
    EXPECT_EQ(sharded.losses, ddp.losses);
    for (std::size_t i = 0; i < ddp.norms.size(); ++i)  // summed shard by shard: another order, in double
      EXPECT_NEAR(sharded.norms[i] / ddp.norms[i], 1, 1e-12);
  }
}

// With micro-steps FSDP sums ranks before micro-steps, DDP the other way round.
TEST_P(FsdpOf, EqualsDataParallelToRoundingWithMicroSteps) {
  const TinyRun run = tiny(GetParam(), 3);
  const RanksResult ddp = train_ranks(3, run, make_ddp), sharded = train_ranks(3, run, fsdp(1));
  for (std::size_t i = 0; i < ddp.losses.size(); ++i) {
    EXPECT_NEAR(sharded.losses[i], ddp.losses[i], GetParam() == Precision::fp32 ? 1e-5 : 2e-2);
    EXPECT_NEAR(sharded.norms[i] / ddp.norms[i], 1, GetParam() == Precision::fp32 ? 1e-4 : 2e-2);
  }
}

TEST(Fsdp, TimingChangesNoBit) {
  TinyRun run = tiny(Precision::fp32, 2, Recompute::block);
  run.model.tied = true;
  const RanksResult first = train_ranks(3, run, fsdp(1));
  for (uint64_t repeat = 1; repeat <= 5; ++repeat)
    EXPECT_EQ(train_ranks(3, run, fsdp(1), repeat).state, first.state) << repeat;
}

// A frozen weight is used and has no gradient; views of a packed one are one window.
TEST(Fsdp, ViewsAndTiedWeightsTrainAsInOneProcess) {
  for (bool tied : {false, true}) {
    TinyRun run = tiny(Precision::fp32, 1);
    run.model.tied = tied;
    run.model.fused_qkv = run.model.fused_gate_up = run.model.fused_linear_ce = false;
    const RanksResult ddp = train_ranks(2, run, make_ddp);
    for (int prefetch : {0, 1, 3}) EXPECT_EQ(train_ranks(2, run, fsdp(prefetch)).state, ddp.state);
  }
}

TEST(Fsdp, FrozenWeightsStayAsTheyAre) {
  std::vector<StateBytes> before(2), after(2);
  run_thread_ranks(2, one_thread(), [&](RankContext& ctx, Communicator& comm) {
    const TinyRun run = tiny(Precision::bf16, 1);
    Llama model(run.model);
    for (Param& p : model.params().params()) {
      if (p.name.find("layers.0.") != std::string::npos) p.trainable = false;
    }
    FsdpStrategy strategy(ctx, comm);
    model.params().materialize(ctx, layout_for(run.precision, run.step, 2, true));
    strategy.attach(model.params());
    TrainStep step(ctx, model, strategy, run.step);
    before[ctx.rank()] = whole_state(ctx, comm, model.params(), nullptr);
    for (int s = 0; s < 3; ++s) {
      const TinyBatch b = tiny_batch(run, 2 * s + ctx.rank());
      const HostBatch view = b.host();
      step.run({&view, 1}, run.lr);
    }
    step.finish();
    after[ctx.rank()] = whole_state(ctx, comm, model.params(), nullptr);
    ctx.tape().reset();
  });
  for (const auto& [name, bytes] : before[0]) {
    const bool frozen = name.find("layers.0.") != std::string::npos;
    if (frozen) {
      EXPECT_EQ(after[0].at(name), bytes) << name;
    }
    EXPECT_EQ(after[0].at(name), after[1].at(name)) << name;
  }
  EXPECT_NE(after[0].at("low.lm_head.weight"), before[0].at("low.lm_head.weight"));
}

// --- whole again -------------------------------------------------------------------------------------------

TEST(Fsdp, TheFullModelIsGatheredToTheBit) {
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::pure_bf16}) {
    run_thread_ranks(3, one_thread(), [&](RankContext& ctx, Communicator& comm) {
      const TinyRun run = tiny(precision, 1);
      Llama sharded(run.model), full(run.model), drawn(run.model), other(run.model);
      sharded.params().materialize(ctx, {.precision = precision, .sharded = true});
      drawn.params().materialize(ctx, {.precision = precision});
      full.params().materialize(ctx, {.precision = precision});
      for (const Tensor& t : {full.params().values(), full.params().low()}) {
        if (t.defined()) ctx.backend().zero(t.raw(), t.bytes().value, ctx.compute());
      }
      gather_full(ctx, comm, sharded.params(), full.params());
      EXPECT_EQ(fetch_bytes(ctx, full.params().values()), fetch_bytes(ctx, drawn.params().values()));
      EXPECT_EQ(fetch_bytes(ctx, full.params().low()), fetch_bytes(ctx, drawn.params().low()));
      other.params().materialize(ctx, {.precision = Precision::autocast});
      EXPECT_THROW(gather_full(ctx, comm, sharded.params(), other.params()), Error);
    });
  }
}

}  // namespace
}  // namespace kiln
