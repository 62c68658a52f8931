// Each pass takes its row by itself, by what its own tensors are like: their alignment, and for attention the
// shape. Planned on an imagined GPU, whose addresses are aligned as a real one's.
#include <gtest/gtest.h>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/cases/run_case.h"
#include "ops/embedding/embedding.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/softmax/softmax.h"
#include "ops/vectorizable.h"
#include "support/has.h"
#include "support/kernel_watch.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

RankOptions imagined_gpu() {
  RankOptions o;
  o.device = Device::meta(DeviceType::cuda);
  o.matmuls = false;
  return o;
}

using Calls = std::vector<std::string>;

// The calls of one op's own name.
Calls calls_of(const KernelWatch& watch, std::string_view op) {
  Calls calls;
  for (const std::string& call : watch.calls()) {
    if (call.starts_with(cat(op, "="))) calls.push_back(call.substr(op.size() + 1));
  }
  return calls;
}

// Rows of `cols` in a tensor of `pitch`, from `begin` on.
Tensor rows_of(RankContext& ctx, int64_t rows, int64_t cols, int64_t pitch, int64_t begin = 0) {
  return ctx.empty({rows, pitch}, DType::f32).narrow(-1, begin, cols);
}

class PassSelection : public testing::Test {
 protected:
  void backward(const Tensor& y) { ctx.tape().backward(y, ctx.empty(y.shape(), y.dtype())); }

  RankContext ctx{imagined_gpu()};
  KernelWatch watch{ctx};
};

TEST_F(PassSelection, AlignedRowsAreFusedBothWays) {
  backward(softmax(ctx, ctx.tape().watch(rows_of(ctx, 3, 64, 68, 4))));
  EXPECT_EQ(calls_of(watch, "softmax"), (Calls{"fused forward", "fused backward"}));
}

TEST_F(PassSelection, EachPassGoesByItsOwnTensors) {
  backward(softmax(ctx, ctx.tape().watch(rows_of(ctx, 3, 64, 65))));  // whose gradient lies as it likes
  EXPECT_EQ(calls_of(watch, "softmax"), (Calls{"naive forward", "fused backward"}));
}

TEST_F(PassSelection, AnOddBeginningIsSeenToo) {
  backward(softmax(ctx, ctx.tape().watch(rows_of(ctx, 1, 64, 68, 3))));
  EXPECT_EQ(calls_of(watch, "softmax"), (Calls{"naive forward", "fused backward"}));
}

TEST_F(PassSelection, WhatForwardSavedOutOfLineStaysOutOfLine) {
  Param weight;
  weight.name = "w", weight.shape = {64}, weight.value = ctx.empty({64}, DType::f32);
  weight.grad = ctx.empty({64}, DType::f32);
  backward(rms_norm(ctx, ctx.tape().watch(rows_of(ctx, 3, 64, 65)), weight, 1e-5f));
  EXPECT_EQ(calls_of(watch, "rms_norm"), (Calls{"naive forward", "naive backward"}));
}

TEST_F(PassSelection, AWeightThatIsElsewhereWillComeAligned) {
  Param weight;
  weight.name = "w", weight.shape = {64};
  EXPECT_TRUE(vectorizable(ParamRef(weight)));
  weight.value = ctx.empty({65}, DType::f32).narrow(0, 1, 64);
  EXPECT_FALSE(vectorizable(ParamRef(weight)));
}

TEST_F(PassSelection, AskedForByNameItRunsOrSaysWhyNot) {
  const Tensor odd = ctx.tape().watch(rows_of(ctx, 3, 64, 65));
  const std::string said = KILN_ERROR_OF((void)softmax(ctx, odd, "fused"));
  EXPECT_TRUE(has(said, "variant 'fused' cannot run here")) << said;
  EXPECT_TRUE(has(said, "begin at multiples of 16 bytes")) << said;
  ctx.variants().set("softmax", "naive");
  backward(softmax(ctx, ctx.tape().watch(rows_of(ctx, 3, 64, 64))));
  EXPECT_EQ(calls_of(watch, "softmax"), (Calls{"naive forward", "naive backward"}));
}

// A gradient that comes with other strides than the pass can take: the requested row is not replaced
// silently.
TEST_F(PassSelection, BackwardOfANamedVariantSaysWhyNotToo) {
  const Tensor y = softmax(ctx, ctx.tape().watch(rows_of(ctx, 3, 64, 64)), "fused");
  const std::string said = KILN_ERROR_OF(ctx.tape().backward(y, rows_of(ctx, 3, 64, 65)));
  EXPECT_TRUE(has(said, "begin at multiples of 16 bytes")) << said;
}

TEST_F(PassSelection, ARecomputedSpanTakesItsRowsAgain) {
  const Tensor x = ctx.tape().watch(rows_of(ctx, 3, 64, 65));
  backward(recompute(ctx, x, [&](const Tensor& t) { return softmax(ctx, t); }));
  EXPECT_EQ(calls_of(watch, "softmax"), (Calls{"naive forward", "naive forward", "fused backward"}));
}

class AttentionSelection : public testing::Test {
 protected:
  // As [1, T, heads * D]; `pitch` elements between rows, 0: none.
  Tensor tensor(int64_t T, int64_t heads, int64_t D, int64_t pitch = 0) {
    const int64_t width = heads * D;
    return ctx.empty({1, T, pitch == 0 ? width : pitch}, DType::bf16).narrow(-1, 0, width);
  }
  Calls calls(int64_t T, int64_t heads, int64_t D, int64_t pitch = 0, std::string_view variant = {}) {
    const KernelWatch watch(ctx);
    ctx.tape().reset();
    const Tensor q = ctx.tape().watch(tensor(T, heads, D, pitch)), k = ctx.tape().watch(tensor(T, heads, D)),
                 v = ctx.tape().watch(tensor(T, heads, D));
    const Tensor o = attention(ctx, q, k, v, {.heads = heads, .kv_heads = heads, .variant = variant});
    ctx.tape().backward(o, ctx.empty(o.shape(), o.dtype()));
    return calls_of(watch, "attention");
  }

  RankContext ctx{imagined_gpu()};
};

TEST_F(AttentionSelection, ManyTokensGoToFlashHopperBothWays) {
  EXPECT_EQ(calls(1024, 48, 64), (Calls{"flash_hopper forward", "flash_hopper backward"}));
}

// As flash_few_rows chose, by the same estimates.
TEST_F(AttentionSelection, FewBlocksOfManyKeysGoForwardByFlash) {
  EXPECT_EQ(calls(4096, 1, 64), (Calls{"flash forward", "flash_hopper backward"}));
}

TEST_F(AttentionSelection, AFewHeadsOfSomeHundredTokensGoBackwardByFlash) {
  EXPECT_EQ(calls(200, 4, 64), (Calls{"flash_hopper forward", "flash backward"}));
  EXPECT_EQ(calls(256, 1, 32), (Calls{"flash_hopper forward", "flash backward"}));
}

TEST_F(AttentionSelection, ANamedVariantTakesBothPasses) {
  for (const char* name : {"flash_hopper", "flash", "flash_hopper_atomic"})
    EXPECT_EQ(calls(4096, 1, 64, 0, name), (Calls{cat(name, " forward"), cat(name, " backward")}));
}

TEST_F(AttentionSelection, WhatTmaCannotAddressGoesToFlashAndIsRefusedByName) {
  EXPECT_EQ(calls(1024, 48, 64, 48 * 64 + 8), (Calls{"flash_hopper forward", "flash_hopper backward"}));
  EXPECT_EQ(calls(1024, 48, 64, 48 * 64 + 3), (Calls{"flash forward", "flash backward"}));
  EXPECT_TRUE(has(KILN_ERROR_OF((void)calls(1024, 48, 64, 48 * 64 + 3, "flash_hopper")), "reads by TMA"));
}

TEST_F(AttentionSelection, NoQueriesOrNoKeysAreNotForFlashHopper) {
  EXPECT_EQ(calls(0, 4, 64), (Calls{"flash forward", "flash backward"}));
  EXPECT_TRUE(has(KILN_ERROR_OF((void)calls(0, 4, 64, 0, "flash_hopper")), "at least one query"));
}

TEST_F(AttentionSelection, TheOldNameStillWorks) {
  EXPECT_EQ(calls(4096, 1, 64, 0, "flash_few_rows"), (Calls{"flash forward", "flash_hopper backward"}));
  EXPECT_EQ(parse_variants("attention=flash_few_rows").find("attention"), "");
  ctx.variants().set("attention", "flash_few_rows");
  EXPECT_EQ(calls(1024, 48, 64), (Calls{"flash_hopper forward", "flash_hopper backward"}));
}

}  // namespace
}  // namespace kiln
