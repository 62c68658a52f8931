// A block's residual connection and the norm after it are one op where both are in one recomputed span, and
// two where they do not. The results must not show it.
#include "model/block.h"

#include <gtest/gtest.h>

#include <map>

#include "autograd/op_observer.h"
#include "autograd/tape.h"
#include "support/tiny_run.h"
#include "support/watched_backend.h"

namespace kiln {
namespace {

RankOptions with_variant(const char* op, const char* variant) {
  RankOptions o;
  o.threads = 2;
  if (*variant != '\0') o.variants.set(op, variant);
  return o;
}

TEST(Block, SumAndNormInOneAreTheTwoOpsToTheBit) {
  for (Precision precision : {Precision::fp32, Precision::bf16}) {
    TinyRun run;
    run.precision = precision;
    const TinyResult two = train_tiny(with_variant("add_rms_norm", "composed"), run);
    EXPECT_TRUE(same_bits(train_tiny(with_variant("add_rms_norm", ""), run), two));
    run.model.recompute = Recompute::nested;  // the border between the halves: two ops of their own
    EXPECT_TRUE(same_bits(train_tiny(with_variant("add_rms_norm", ""), run), two));
  }
}

struct OpCount : OpObserver {
  std::map<std::string, int> forward;
  void on_op_begin(RankContext&, const OpEvent& e) override {
    if (e.pass == Pass::forward) ++forward[std::string(e.op)];
  }
};

TEST(Block, ItsSecondNormComesWithTheSum) {
  RankOptions meta;
  meta.device = Device::meta();
  RankContext ctx(meta);
  const TinyRun run;
  ParamStore params;
  const Block block(params, run.model, 0);
  params.materialize(ctx);
  OpCount count;
  ctx.add_observer(&count);
  const Tensor x = ctx.empty({2, 8, run.model.d_model}, DType::f32);
  EXPECT_EQ(block.forward(ctx, {x}).whole(ctx).shape(), x.shape());
  ctx.remove_observer(&count);
  EXPECT_EQ(count.forward["add_rms_norm"], 1);
  EXPECT_EQ(count.forward["rms_norm"], 1);
  EXPECT_EQ(count.forward["add"], 1);
}

struct MoveCount : WatchedBackend {
  int moves = 0;
  void copy_within(void* dst, const void* src, std::size_t bytes, Stream s) override {
    ++moves;
    WatchedBackend::copy_within(dst, src, bytes, s);
  }
  void zero(void* dst, std::size_t bytes, Stream s) override {
    ++moves;
    WatchedBackend::zero(dst, bytes, s);
  }
};

// Gradients of the parts of packed projections are written where the packed gradient wants them, those of the
// residual stream are added in place: on a GPU every copy, fill or addition here would be a launch.
TEST(Block, BackwardMovesNoGradientForItsOwnSake) {
  for (bool nested : {false, true}) {
    RankOptions o = watched<MoveCount>();
    o.device = Device::meta();  // nothing is computed, all else happens
    RankContext ctx(o);
    TinyRun run;
    if (nested) run.model.recompute = Recompute::nested;
    ParamStore params;
    const Block first(params, run.model, 0), second(params, run.model, 1);
    params.materialize(ctx);
    auto& backend = static_cast<MoveCount&>(ctx.backend());
    backend.moves = 0;
    OpCount count;
    ctx.add_observer(&count);
    const Shape shape{2, 8, run.model.d_model};
    const Tensor x = ctx.tape().watch(ctx.empty(shape, DType::f32));
    Tensor y = second.forward(ctx, first.forward(ctx, {x})).whole(ctx);
    const int sums = count.forward["add"];
    ctx.tape().backward(std::move(y), ctx.empty(shape, DType::f32));
    EXPECT_EQ(backend.moves, 0);
    if (!nested) {  // a span that is run again adds as it did the first time
      EXPECT_EQ(count.forward["add"], sums) << "a gradient was added by a kernel of its own";
    }
    EXPECT_TRUE(ctx.tape().grad(x).defined());
    ctx.tape().reset();
  }
}

}  // namespace
}  // namespace kiln
