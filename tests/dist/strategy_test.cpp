// DDP and FSDP hooks on a handful of weights, where every number can be checked: rows nothing reached,
// padding, memory that held something else before.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/tape.h"
#include "dist/comm/threads/thread_group.h"
#include "dist/strategy/ddp.h"
#include "dist/strategy/fsdp.h"
#include "ops/linear/linear.h"

namespace kiln {
namespace {

RankOptions one_thread() {
  RankOptions o;
  o.threads = 1;
  return o;
}

void fill(const Tensor& t, float value) {
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = value;
}

// What a caching allocator hands out next holds NaN.
void poison_free_memory(RankContext& ctx) {
  std::vector<Tensor> held;
  for (int i = 0; i < 64; ++i) {
    held.push_back(ctx.empty({128}, DType::f32));
    fill(held.back(), NAN);
  }
}

std::vector<float> floats(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.numel()}; }

// "ab" is packed (a: 1 row, b: 2 rows) and only b is used; "unused" is not used at all. Rank r's x is (r+1,
// 10, 0).
struct Weights {
  explicit Weights(RankContext& ctx, bool sharded) {
    ab = &store.add_packed("ab", {{"a", 0, 1, {}}, {"b", 1, 2, {}}}, 3);
    unused = &store.add("unused", {1, 5}, {});
    store.materialize(ctx, {Precision::fp32, sharded});
  }
  // dW = dy^T x with dy = (1, 2).
  void micro_step(RankContext& ctx) {
    poison_free_memory(ctx);
    ctx.tape().reset();
    const float values[] = {static_cast<float>(ctx.rank() + 1), 10, 0}, ones[] = {1, 2};
    const Tensor x = ctx.empty({1, 3}, DType::f32), dy = ctx.empty({1, 2}, DType::f32);
    ctx.upload(x, values);
    ctx.upload(dy, ones);
    ctx.tape().backward(linear(ctx, ctx.tape().watch(x), ParamRef::view(*ab, 1)), dy);
    ctx.tape().reset();
  }
  void step(RankContext& ctx, Strategy& strategy, int micro_steps) {
    for (Param* p : {ab, unused}) {  // what an earlier step left
      const Tensor g = store.local_grad(*p);
      fill(store.layout().sharded ? g : g.narrow(0, 0, p->shape.numel()), NAN);
    }
    store.begin_step();
    strategy.begin_step();
    for (int i = 0; i < micro_steps; ++i) {
      strategy.begin_micro_step(i + 1 == micro_steps);
      micro_step(ctx);
    }
    store.finish_gradients(ctx);
    strategy.finish_gradients();
  }

  ParamStore store;
  Param *ab, *unused;
};

// a's rows, b's rows summed over both ranks, padding.
std::vector<float> expected(int micro_steps) {
  const auto k = static_cast<float>(micro_steps);
  std::vector<float> g = {0, 0, 0, k * 3, k * 20, 0, k * 6, k * 40, 0};
  g.resize(16);
  return g;
}

TEST(Ddp, RowsNothingReachedAreZeroBeforeTheSum) {
  for (int micro_steps : {1, 2}) {
    run_thread_ranks(2, one_thread(), [&](RankContext& ctx, Communicator& comm) {
      Weights w(ctx, false);
      DdpStrategy ddp(ctx, comm);
      ddp.attach(w.store);
      for (int s = 0; s < 2; ++s) {
        w.step(ctx, ddp, micro_steps);
        EXPECT_EQ(floats(w.store.local_grad(*w.ab)), expected(micro_steps));
        EXPECT_EQ(floats(w.store.local_grad(*w.unused)), std::vector<float>(8));
      }
    });
  }
}

TEST(Ddp, AWeightOnlyOneRankUsedIsSummedToo) {
  run_thread_ranks(2, one_thread(), [](RankContext& ctx, Communicator& comm) {
    Weights w(ctx, false);
    DdpStrategy ddp(ctx, comm);
    ddp.attach(w.store);
    w.step(ctx, ddp, ctx.rank() == 0 ? 1 : 0);
    std::vector<float> alone = {0, 0, 0, 1, 10, 0, 2, 20, 0};
    alone.resize(16);
    EXPECT_EQ(floats(w.store.local_grad(*w.ab)), alone);
  });
}

// Two weights of one size. Rank 0 reaches both, rank 1 only the one whose gradient comes second: it must not
// be summed with the other's.
TEST(Ddp, RanksThatReachDifferentWeightsSendThemInOneOrder) {
  for (const BucketOptions& form : {DdpStrategy::naive(), DdpStrategy::flat(), DdpStrategy::overlap()}) {
    run_thread_ranks(2, one_thread(), [&](RankContext& ctx, Communicator& comm) {
      ParamStore store;
      Param &first = store.add("first", {3, 3}, {}), &second = store.add("second", {3, 3}, {});
      store.materialize(ctx);
      DdpStrategy ddp(ctx, comm, form);
      ddp.attach(store);
      fill(store.local_value(first), 1);
      fill(store.local_value(second), 2);
      store.begin_step();
      ddp.begin_step();
      ddp.begin_micro_step(true);
      const Tensor x = ctx.empty({1, 3}, DType::f32), dy = ctx.empty({1, 3}, DType::f32);
      fill(x, 1);
      fill(dy, 1);
      Tensor y = linear(ctx, ctx.tape().watch(x), first);  // 3 everywhere
      if (ctx.rank() == 0) y = linear(ctx, y, second);
      ctx.tape().backward(y, dy);
      ctx.tape().reset();
      store.finish_gradients(ctx);
      ddp.finish_gradients();
      EXPECT_EQ(first.grad.data<float>()[4], 6 + 1);  // through `second`, and straight
      EXPECT_EQ(second.grad.data<float>()[4], 3);
    });
  }
}

TEST(Fsdp, RowsNothingReachedAndPaddingAreZeroBeforeTheSum) {
  for (int micro_steps : {1, 2}) {
    run_thread_ranks(2, one_thread(), [&](RankContext& ctx, Communicator& comm) {
      Weights w(ctx, true);
      FsdpStrategy fsdp(ctx, comm);
      fsdp.attach(w.store);
      for (int s = 0; s < 2; ++s) {
        w.step(ctx, fsdp, micro_steps);
        const std::vector<float> all = expected(micro_steps);
        const auto half = all.begin() + 8 * ctx.rank();
        EXPECT_EQ(floats(w.store.local_grad(*w.ab)), std::vector<float>(half, half + 8));
        EXPECT_EQ(floats(w.store.local_grad(*w.unused)), std::vector<float>(4));
      }
    });
  }
}

TEST(Fsdp, NothingStaysGathered) {
  run_thread_ranks(2, one_thread(), [](RankContext& ctx, Communicator& comm) {
    Weights w(ctx, true);
    FsdpStrategy fsdp(ctx, comm);
    fsdp.attach(w.store);
    w.step(ctx, fsdp, 2);
    EXPECT_FALSE(w.ab->value.defined());
    const std::size_t slots = ctx.allocator().stats().live[Tag::comm];
    EXPECT_LE(slots, 2 * round_up(w.ab->padded * 4, 512));
    {
      const ParamUse one(*w.ab, false), two(*w.ab, false);  // gathered once for both
      EXPECT_EQ(one.tensor().raw(), two.tensor().raw());
    }
    EXPECT_FALSE(w.ab->value.defined());
    EXPECT_EQ(ctx.allocator().stats().live[Tag::comm], slots);
  });
}

TEST(Fsdp, AGatherThatFailsHasNoUser) {
  run_thread_ranks(2, one_thread(), [](RankContext& ctx, Communicator& comm) {
    Weights w(ctx, true);
    FsdpStrategy fsdp(ctx, comm);
    fsdp.attach(w.store);
    ctx.allocator().fail_at(1);
    EXPECT_THROW(ParamUse(*w.ab, false), Error);
    const ParamUse again(*w.ab, false);
    EXPECT_EQ(again.tensor().shape(), (Shape{3, 3}));
  });
}

}  // namespace
}  // namespace kiln
