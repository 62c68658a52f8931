// A block's residual connection and the norm after it are one op where both stand in one recomputed span, and
// two where they do not. Nobody may be able to tell from the results.
#include "model/block.h"

#include <gtest/gtest.h>

#include <map>

#include "autograd/op_observer.h"
#include "support/tiny_run.h"

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
  EXPECT_EQ(block.forward(ctx, x).shape(), x.shape());
  ctx.remove_observer(&count);
  EXPECT_EQ(count.forward["add_rms_norm"], 1);
  EXPECT_EQ(count.forward["rms_norm"], 1);
  EXPECT_EQ(count.forward["add"], 1);
}

}  // namespace
}  // namespace kiln
