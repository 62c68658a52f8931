// How buckets go through a step: which of them backward is held up for, and what a step that broke off leaves
// to the next. On a slow link, so that sums are still in flight when the question comes up.
#include <gtest/gtest.h>

#include "autograd/tape.h"
#include "dist/comm/threads/thread_group.h"
#include "dist/strategy/ddp.h"
#include "dist/strategy/zero.h"
#include "ops/linear/linear.h"

namespace kiln {
namespace {

constexpr int kWeights = 4;

RankOptions one_thread() {
  RankOptions o;
  o.threads = 1;
  return o;
}

CommOptions slow_link() {
  CommOptions o;
  o.link = LinkModel{2e-3, 1e9};
  return o;
}

void fill(const Tensor& t, float value) {
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = value;
}

// Matrices one after the other. Backward is the last one's gradient first.
struct Chain {
  Chain(RankContext& ctx, BucketedStrategy& strategy) : strategy(strategy) {
    for (int i = 0; i < kWeights; ++i) weights.push_back(&store.add(cat("w", i), {8, 8}, {}));
    store.materialize(ctx, {.sharded_grads = strategy.shards_grads()});
    strategy.attach(store);
    for (Param* p : weights) fill(store.local_value(*p), 0.125F);
  }
  // Through the last `reached` matrices, on rank r with x = scale * (r + 1).
  void backward(RankContext& ctx, float scale, int reached) {
    store.begin_step();
    strategy.begin_step();
    strategy.begin_micro_step(true);
    const Tensor x = ctx.empty({1, 8}, DType::f32), dy = ctx.empty({1, 8}, DType::f32);
    fill(x, scale * static_cast<float>(ctx.rank() + 1));
    fill(dy, 1);
    Tensor y = ctx.tape().watch(x);
    for (int i = kWeights - reached; i < kWeights; ++i)
      y = linear(ctx, y, *weights[static_cast<std::size_t>(i)]);
    ctx.tape().backward(y, dy);
    ctx.tape().reset();
  }
  void step(RankContext& ctx, float scale) {
    backward(ctx, scale, kWeights);
    store.finish_gradients(ctx);
    strategy.finish_gradients();
  }
  std::vector<float> grads() const {
    std::vector<float> all;
    for (const ParamSpan& s : strategy.spans(store))
      all.insert(all.end(), s.grad.data<float>(), s.grad.data<float>() + s.grad.numel());
    return all;
  }

  BucketedStrategy& strategy;
  ParamStore store;
  std::vector<Param*> weights;
};

using Make = std::unique_ptr<BucketedStrategy> (*)(RankContext&, Communicator&);

std::unique_ptr<BucketedStrategy> overlap(RankContext& ctx, Communicator& comm) {
  return std::make_unique<DdpStrategy>(ctx, comm, DdpStrategy::overlap());
}
template <int kStage>
std::unique_ptr<BucketedStrategy> zero(RankContext& ctx, Communicator& comm) {
  return std::make_unique<ZeroStrategy>(ctx, comm, kStage, BucketOptions{.cap = 0});
}
template <int kStage>
std::unique_ptr<BucketedStrategy> pairs(RankContext& ctx, Communicator& comm) {
  return std::make_unique<ZeroStrategy>(ctx, comm, kStage, BucketOptions{.cap = 512});
}

// What bf16 carries is a copy.
std::unique_ptr<BucketedStrategy> rounded(RankContext& ctx, Communicator& comm) {
  return std::make_unique<ZeroStrategy>(ctx, comm, 1, BucketOptions{.cap = 0, .wire = DType::bf16});
}

TEST(BucketFlow, AStepThatBrokeOffLeavesNothingToTheNext) {
  for (const Make make : {&overlap, &zero<1>, &zero<2>, &pairs<1>, &pairs<2>, &rounded}) {
    run_thread_ranks(
        2, one_thread(),
        [&](RankContext& ctx, Communicator& comm) {
          const auto clean = make(ctx, comm);
          Chain expected(ctx, *clean);
          expected.step(ctx, 1);
          const auto broken = make(ctx, comm);
          Chain chain(ctx, *broken);
          for (const int reached : {1, 2, kWeights}) {
            chain.backward(ctx, 1000, reached);  // its sums are in flight, and are not waited for
            chain.step(ctx, 1);
            EXPECT_EQ(chain.grads(), expected.grads()) << reached;
          }
        },
        slow_link());
  }
}

struct Waits final : BucketObserver {
  void on_wait_begin() override { ++(over ? after : during); }
  void on_finish_begin() override { over = true; }
  bool over = false;
  int during = 0, after = 0;  // backward
};

Waits waits_of(Make make) {
  Waits first;
  run_thread_ranks(
      2, one_thread(),
      [&](RankContext& ctx, Communicator& comm) {
        const auto strategy = make(ctx, comm);
        Chain chain(ctx, *strategy);
        Waits waits;
        strategy->observe(&waits);
        chain.step(ctx, 1);
        strategy->observe(nullptr);
        if (ctx.rank() == 0) first = waits;
      },
      slow_link());
  return first;
}

// Buckets of one weight are sent in place and received there: waiting for them gives no memory
// back.
TEST(BucketFlow, BackwardWaitsOnlyForCopies) {
  const Waits ddp = waits_of(&overlap), in_place = waits_of(&zero<1>), rooms = waits_of(&zero<2>);
  EXPECT_EQ(ddp.during, 0);
  EXPECT_EQ(in_place.during, 0);
  EXPECT_EQ(in_place.after, kWeights);
  constexpr int kLeft = BucketOptions{}.in_flight;  // still pending when backward ends
  EXPECT_EQ(rooms.during, kWeights - kLeft);
  EXPECT_EQ(waits_of(&rounded).during, kWeights - kLeft);
}

}  // namespace
}  // namespace kiln
