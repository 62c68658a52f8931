#include "perf/memory/residual_ledger.h"

#include <gtest/gtest.h>

#include "autograd/tape.h"
#include "ops/elementwise/binary.h"
#include "ops/rms_norm/rms_norm.h"
#include "perf/memory/block_residuals.h"
#include "train/presets.h"

namespace kiln {
namespace {

RankOptions on_meta() {
  RankOptions o;
  o.device = Device::meta();
  return o;
}

TEST(ResidualLedger, NamesTensorProducerAndBytes) {
  RankContext ctx(on_meta());
  ResidualWatch watch(ctx);
  const Tensor x = ctx.tape().watch(ctx.empty({3, 5}, DType::f32));
  watch.name_input("x", x);
  const Tensor y = mul(ctx, x, x), z = mul(ctx, y, x);
  const ResidualLedger ledger = watch.take();
  ASSERT_EQ(ledger.saved.size(), 4u);
  EXPECT_EQ(ledger.saved[0].producer, "x");
  EXPECT_TRUE(ledger.saved[0].input);
  EXPECT_EQ(ledger.saved[0].new_bytes, 60u);
  EXPECT_EQ(ledger.saved[1].new_bytes, 0u);  // the same tensor again
  EXPECT_EQ(ledger.saved[2].producer, "mul y");
  EXPECT_FALSE(ledger.saved[2].input);
  EXPECT_EQ(ledger.saved[2].new_bytes, 60u);
  EXPECT_EQ(ledger.bytes(), 120u);
  EXPECT_EQ(ledger.input_bytes(), 60u);
  ASSERT_EQ(ledger.loads.size(), 2u);
  EXPECT_EQ(ledger.loads[0].saved, 120u);  // a tensor that is read twice is read twice
  EXPECT_EQ(ledger.loads[0].gradients, 60u);
  EXPECT_EQ(ledger.loaded(), 360u);
  ctx.tape().reset();
}

KeptTensor kept(const char* op, std::size_t bytes) {
  KeptTensor t;
  t.op = op;
  t.bytes = t.new_bytes = bytes;
  return t;
}

TEST(ResidualLedger, LargestSharesFollowTheRows) {
  ResidualLedger ledger;
  ledger.saved.push_back(kept("a", 10));
  ledger.saved.push_back(kept("b", 30));
  ledger.saved.push_back(kept("a", 60));
  std::vector<ResidualShare> shares = largest_shares(ledger, 5);
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[0].op, "a");
  EXPECT_DOUBLE_EQ(shares[0].share, 0.7);
  ledger.saved[1].new_bytes = 130;
  shares = largest_shares(ledger, 1);
  ASSERT_EQ(shares.size(), 1u);
  EXPECT_EQ(shares[0].op, "b");
  EXPECT_DOUBLE_EQ(shares[0].share, 0.65);
}

class BlockOfPreset : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Presets, BlockOfPreset, testing::Values("baseline", "optimized"),
                         [](const auto& info) { return std::string(info.param); });

// The ledger, the allocator on meta and the allocator on the CPU count the same bytes.
TEST_P(BlockOfPreset, LedgerPredictionAndMeasurementAgree) {
  BlockRequest r;
  r.model = {.vocab = 96, .d_model = 64, .d_ff = 192, .layers = 5, .heads = 4, .kv_heads = 2};
  r.batch = 2;
  r.context = 64;  // every tensor a whole number of the allocator's units
  const RunVariants v = choose_variants(GetParam(), "");
  v.apply_to(r.model);
  r.rank.variants = v.ops;
  const BlockResiduals b = block_residuals(r);
  ASSERT_TRUE(b.measured);
  EXPECT_EQ(b.measured->kept, b.predicted.kept);
  EXPECT_EQ(b.measured->freed, b.predicted.freed);
  EXPECT_EQ(b.predicted.freed, b.predicted.kept);
  EXPECT_EQ(b.ledger.bytes(), b.predicted.kept);
  EXPECT_EQ(b.gradients, b.gradients_expected);
  ASSERT_EQ(b.stack.size(), 4u);
  EXPECT_EQ(b.stack[0].bytes, 5 * b.predicted.kept);
  EXPECT_EQ(b.stack[1].bytes, 5 * b.stream);  // block: every input
  EXPECT_EQ(b.stack[2].bytes, 3 * b.stream);  // every:2 of five
  EXPECT_EQ(b.stack[3].bytes, b.stream);      // nested: the first input, until backward
}

// A published example: four blocks of d_model 2560 at context 2048, recomputed two by two, keep 160 MiB.
TEST(BlockResiduals, TwoByTwoKeeps160MiB) {
  BlockRequest r;
  r.model = {.vocab = 64, .d_model = 2560, .d_ff = 10240, .layers = 4, .heads = 16, .kv_heads = 16};
  r.context = 2048;
  r.rank.device = Device::meta();
  const BlockResiduals b = block_residuals(r);
  EXPECT_FALSE(b.measured);
  ASSERT_EQ(b.stack.size(), 4u);
  EXPECT_EQ(b.stack[2].recompute, Recompute::every(2));
  EXPECT_EQ(b.stack[2].bytes, std::size_t{160} << 20);
  EXPECT_EQ(b.stream, std::size_t{80} << 20);
}

}  // namespace
}  // namespace kiln
