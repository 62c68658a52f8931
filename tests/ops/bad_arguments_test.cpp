// What an op says to wrong arguments: its name, both sides of the mismatch, and what to do.
#include <gtest/gtest.h>

#include "autograd/param_store.h"
#include "ops/add/add.h"
#include "ops/attention/attention.h"
#include "ops/batched_matmul/batched_matmul.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/broadcast.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/masked_softmax/masked_softmax.h"
#include "ops/op_list.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/swiglu/swiglu.h"

namespace kiln {
namespace {

// The error text and hint of whatever f throws.
template <class F>
std::string complaint(F f, ErrorKind kind = ErrorKind::failed) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return cat(e.what(), " | ", e.hint());
  }
  return "nothing was thrown";
}

class BadArguments : public testing::Test {
 protected:
  BadArguments() : ctx(RankOptions{}) {
    norm = &store.add("model.norm.weight", {512}, {});
    head = &store.add("lm_head.weight", {10, 768}, {});
    store.materialize(ctx);
  }
  Tensor t(const Shape& s, DType d = DType::f32) { return ctx.zeros(s, d); }

  RankContext ctx;
  ParamStore store;
  Param* norm;
  Param* head;
};

TEST_F(BadArguments, ShapesShowBothSides) {
  EXPECT_EQ(complaint([&] { rms_norm(ctx, t({4, 768}), *norm, 1e-5f); }),
            "[rms_norm] weight model.norm.weight has 512 elements, last axis of x [4, 768] is 768 | ");
  EXPECT_EQ(complaint([&] { linear(ctx, t({4, 512}), *head); }),
            "[linear] weight lm_head.weight is [10, 768], last axis of x [4, 512] is 512 | ");
  EXPECT_EQ(complaint([&] { add(ctx, t({4, 5}), t({4, 6})); }),
            "[add] b has shape [4, 6], [4, 5] is needed | ");
  EXPECT_EQ(complaint([&] { swiglu(ctx, t({4, 5}), t({5, 4})); }),
            "[swiglu] up has shape [5, 4], [4, 5] is needed | ");
  EXPECT_EQ(complaint([&] { cross_entropy(ctx, t({4, 5}), t({3}, DType::i32)); }),
            "[cross_entropy] targets [3] do not match logits [4, 5] | one target for every row of logits");
  EXPECT_EQ(complaint([&] { linear_cross_entropy(ctx, t({4, 768}), *head, t({3}, DType::i32)); }),
            "[linear_cross_entropy] targets [3] do not match x [4, 768] | one target for every row of x");
  EXPECT_EQ(complaint([&] { linear_cross_entropy(ctx, t({4, 5}), *head, t({4}, DType::i32)); }),
            "[linear_cross_entropy] weight lm_head.weight is [10, 768], last axis of x [4, 5] is 5 | ");
}

TEST_F(BadArguments, AttentionHeadsMustFit) {
  auto run = [&](int64_t heads, int64_t kv, const Shape& q, const Shape& k) {
    AttentionOptions o;
    o.heads = heads;
    o.kv_heads = kv;
    return complaint([&] { attention(ctx, t(q), t(k), t(k), o); });
  };
  EXPECT_EQ(run(3, 2, {1, 4, 12}, {1, 4, 8}),
            "[attention] 3 heads do not share 2 key/value heads | heads must be a multiple of kv_heads");
  EXPECT_EQ(run(5, 5, {1, 4, 12}, {1, 4, 12}),
            "[attention] last axis of q is 12, not a multiple of 5 heads | ");
  EXPECT_EQ(run(2, 2, {1, 4, 12}, {1, 4, 10}), "[attention] k has shape [1, 4, 10], [1, 4, 12] is needed | ");
  EXPECT_EQ(run(2, 2, {4, 12}, {4, 12}),
            "[attention] q has shape [4, 12], [B, T, heads * head_dim] is needed | ");
}

TEST_F(BadArguments, BatchedMatricesMustFit) {
  auto run = [&](const Shape& a, const Shape& b, const BatchedMatmulOptions& o) {
    return complaint([&] { batched_matmul(ctx, t(a), t(b), o); });
  };
  EXPECT_EQ(run({2, 4, 6}, {2, 5, 8}, {}),
            "[batched_matmul] a [2, 4, 6] and b [2, 5, 8] do not fit: [2, 6, 8] is needed | ");
  EXPECT_EQ(run({2, 4, 6}, {3, 8, 6}, {.transpose_b = true}),
            "[batched_matmul] a [2, 4, 6] and b [3, 8, 6], transposed, do not fit: [2, 8, 6] is "
            "needed | ");
  EXPECT_EQ(run({2, 3, 4, 6}, {2, 2, 6, 5}, {.heads = 3, .b_heads = 2}),
            "[batched_matmul] 3 heads of a do not share 2 heads of b | heads must be a multiple of b_heads");
  EXPECT_EQ(run({2, 3, 4, 6}, {2, 6, 5}, {.heads = 2}),
            "[batched_matmul] a [2, 3, 4, 6] has 3 heads, 2 were named | ");
  EXPECT_EQ(run({2, 4, 7}, {2, 7, 5}, {.heads = 2}),
            "[batched_matmul] last axis of a [2, 4, 7] is not a multiple of 2 heads | ");
  EXPECT_EQ(
      run({4, 7}, {7, 5}, {}),
      "[batched_matmul] a has shape [4, 7], [B, heads, rows, cols] or [B, rows, heads * cols] is needed "
      "| ");
  EXPECT_EQ(complaint([&] { masked_softmax(ctx, t({5}), {}); }),
            "[masked_softmax] x has shape [5], [..., queries, keys] is needed | ");
}

TEST_F(BadArguments, RopeNeedsPairsAndPositions) {
  auto run = [&](const Shape& q, const Shape& k, RopeOptions o) {
    return complaint([&] { rope(ctx, t(q), t(k), o); });
  };
  EXPECT_EQ(run({1, 4, 6}, {1, 4, 6}, {.heads = 2, .kv_heads = 2}),
            "[rope] a head is 3 wide, an even width is needed | rotation works on pairs of values");
  EXPECT_EQ(run({1, 4, 8}, {1, 4, 8}, {.heads = 2, .kv_heads = 1}),
            "[rope] k has shape [1, 4, 8], [1, 4, 4] is needed | ");
  EXPECT_EQ(run({1, 4, 8}, {1, 4, 8}, {.offset = -1}), "[rope] offset is -1, positions start at 0 | ");
  EXPECT_EQ(run({1, 4, 8}, {1, 4, 8}, {.theta = 0}), "[rope] theta is 0, it must be positive | ");
  EXPECT_EQ(complaint([&] { mul_rows(ctx, t({4, 5}), t({5})); }),
            "[mul_rows] s has shape [5], [4] is needed | ");
}

TEST_F(BadArguments, DtypesAreNamed) {
  EXPECT_EQ(complaint([&] { add(ctx, t({4, 5}), t({4, 5}, DType::bf16)); }),
            "[add] b is bf16 [4, 5], fp32 is needed | ");
  EXPECT_EQ(complaint([&] { swiglu(ctx, t({4, 5}, DType::i32), t({4, 5}, DType::i32)); }),
            "[swiglu] gate is int32 [4, 5], a floating dtype is needed | ");
  EXPECT_EQ(complaint([&] { linear(ctx, t({4, 768}, DType::bf16), *head); }),
            "[linear] weight lm_head.weight is fp32, x is bf16 | ");
  EXPECT_EQ(complaint([&] { embedding(ctx, t({4}, DType::i64), *head); }),
            "[embedding] tokens is int64 [4], int32 is needed | ");
  EXPECT_EQ(complaint([&] { add(ctx, Tensor(), t({1})); }), "[add] a is an empty tensor | ");
}

TEST_F(BadArguments, DevicesAreNamed) {
  RankOptions o;
  o.device = Device::meta();
  RankContext meta(o);
  const Tensor elsewhere = meta.empty({4, 5}, DType::f32);
  EXPECT_EQ(complaint([&] { add(ctx, t({4, 5}), elsewhere); }),
            "[add] b is on meta, this rank computes on cpu | upload it to the rank's device first");
}

TEST_F(BadArguments, UnknownVariantsGetASuggestion) {
  EXPECT_EQ(complaint([&] { add(ctx, t({1, 2}), t({1, 2}), "naiv"); }, ErrorKind::usage),
            "[add] has no variant 'naiv' | did you mean 'naive'? it has: fused, naive");
  ctx.variants().set("swiglu", "warp");
  EXPECT_EQ(complaint([&] { swiglu(ctx, t({1, 2}), t({1, 2})); }, ErrorKind::usage),
            "[swiglu] has no variant 'warp' | it has: fused, naive, composed");
}

TEST_F(BadArguments, AVariantThatCannotRunGivesEveryReason) {
  const std::string said = complaint([&] { linear(ctx, t({4, 768}), *head, "lt"); }, ErrorKind::unavailable);
  EXPECT_NE(said.find("[linear] variant 'lt' cannot run here"), std::string::npos) << said;
  EXPECT_NE(said.find("lt (cuda): runs on cuda, not on cpu"), std::string::npos) << said;
  EXPECT_NE(said.find("kiln ops"), std::string::npos) << said;
}

TEST_F(BadArguments, AVariantThatTheGpuOrTheFormatRulesOutSaysWhichOfThem) {
  auto said = [](DType dtype, int compute_capability) {
    RankOptions o;
    o.device = Device::meta(DeviceType::cuda);
    o.meta_compute_capability = compute_capability;
    RankContext gpu(o);
    const Tensor q = gpu.empty({1, 8, 64}, dtype);
    return complaint([&] { attention(gpu, q, q, q, {.heads = 1, .kv_heads = 1, .variant = "flash"}); },
                     ErrorKind::unavailable);
  };
  EXPECT_EQ(said(DType::f32, 90),
            "[attention] variant 'flash' cannot run here: flash (cuda): runs on the tensor cores in bf16 and "
            "fp16, not in fp32 | choose another device or variant (kiln ops lists them)");
  EXPECT_NE(said(DType::bf16, 75).find("flash (cuda): needs compute capability 8.0"), std::string::npos);
}

TEST_F(BadArguments, VariantSpecsAreChecked) {
  EXPECT_EQ(complaint([&] { parse_variants("atention=naive"); }, ErrorKind::usage),
            "there is no op 'atention' | did you mean 'attention'?");
  EXPECT_TRUE(complaint([&] { parse_variants("attention=flsh"); }, ErrorKind::usage)
                  .starts_with("[attention] has no variant 'flsh' | did you mean 'flash'? it has: small_m, "
                               "flash, naive, composed"));
  EXPECT_NE(complaint([&] { parse_variants("attention"); }, ErrorKind::usage).find("not an op and a variant"),
            std::string::npos);
  EXPECT_EQ(parse_variants("attention=naive,linear=lt").find("linear"), "lt");
}

TEST_F(BadArguments, OutOfMemorySaysWhatToChange) {
  RankOptions o;
  o.memory_cap = {std::size_t{8} << 20};
  RankContext small(o);
  const Tensor held = small.empty({1 << 20}, DType::f32, Tag::param);
  const std::string said = complaint([&] { small.empty({1 << 21}, DType::f32, Tag::activation); });
  for (const char* part :
       {"8.00 MiB wanted for activation", "param 4.00 MiB", "limit 8.00 MiB", "smaller batch"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << " is missing from: " << said;
  }
}

TEST_F(BadArguments, NoGpuIsUnavailable) {
  RankOptions o;
  o.device = Device::cuda(100);
  EXPECT_NE(complaint([&] { RankContext c(o); }, ErrorKind::unavailable), "nothing was thrown");
}

}  // namespace
}  // namespace kiln
