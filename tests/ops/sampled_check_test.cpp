// Checks at the timed size: every variant of every op passes them on sampled rows, and mistakes that only
// large sizes show do not.
#include "ops/cases/sampled_check.h"

#include <gtest/gtest.h>

#include "ops/cases/bench_case.h"
#include "ops/linear/linear.h"
#include "ops/op_list.h"
#include "ops/swiglu/swiglu.h"

namespace kiln {
namespace {

// Sizes at which everything is quick, and most rows are left out.
BenchShape small_shape(const OpBench& bench) {
  BenchShape s = bench.shapes.front();
  for (const auto& [key, value] : s.all()) s.set(key, std::min<int64_t>(value, 96));
  for (const char* key : {"rows", "params"}) s.set(key, 301);
  for (const auto& [key, size] : {std::pair{"heads", 4}, {"kv_heads", 2}, {"dim", 16}, {"batch", 3}})
    s.set(key, size);
  s.set("vocab", 97);
  return s;
}

Sampling few() { return {.seed = 7, .work = 1, .most = 5}; }

RankOptions here(const std::string& op, const std::string& variant) {
  RankOptions o;
  o.device = Device::cpu();
  o.threads = 2;
  o.variants.set(op, variant);
  return o;
}

TEST(SampledCheck, EveryVariantPassesOnRowsThatAreLeftOut) {
  const std::vector<OpListing> ops = list_ops();
  for (const OpBench& bench : all_op_benches()) {
    const BenchShape shape = small_shape(bench);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const SampledReference reference(bench.sampled(shape, few()), dtype, 5, 2);
      EXPECT_FALSE(reference.sampled().complete()) << bench.op;
      for (const VariantListing& v : find_op(ops, bench.op).variants) {
        if (v.device != DeviceType::cpu) continue;
        RankContext ctx(here(bench.op, v.name));
        SampledResult r;
        try {
          r = reference.check(ctx);
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("cannot run here"), std::string::npos) << error.what();
          continue;  // a variant that does not take the shape or the dtype
        }
        EXPECT_TRUE(r.passed) << bench.op << " " << v.name << " " << name_of(dtype) << ": " << r.reason;
        EXPECT_FALSE(r.worst.tensor.empty()) << bench.op;
      }
    }
  }
}

TEST(SampledCheck, SmallProblemsAreCheckedWhole) {
  const OpBench bench = find_op_bench("swiglu");
  const SampledCase c = bench.sampled({{"rows", 40}, {"cols", 24}}, {});
  EXPECT_TRUE(c.complete());
  RankContext ctx(here("swiglu", "fused"));
  EXPECT_TRUE(SampledReference(c, DType::f32, 1, 1).check(ctx).passed);
}

// The op of `c` with something done to its tensors before or after.
SampledResult check_broken(
    SampledCase c, const std::function<CaseOutputs(RankContext&, std::span<const CaseArgument>)>& call) {
  c.whole.call = call;  // the parts stay right
  RankContext ctx(here("swiglu", "fused"));
  return SampledReference(std::move(c), DType::f32, 3, 1).check(ctx);
}

TEST(SampledCheck, AWrongLastRowIsFound) {
  const SampledCase c = find_op_bench("swiglu").sampled({{"rows", 3000}, {"cols", 64}}, few());
  const SampledResult r = check_broken(c, [](RankContext& ctx, std::span<const CaseArgument> in) {
    Tensor y = swiglu(ctx, in[0].tensor, in[1].tensor);
    if (!ctx.device().is_meta()) y.data<float>()[y.numel() - 1] += 1;
    return y;
  });
  EXPECT_FALSE(r.passed);
  EXPECT_NE(r.reason.find("y is off by"), std::string::npos) << r.reason;
}

TEST(SampledCheck, AWrongBackwardIsFoundThoughForwardIsRight) {
  const SampledCase c = find_op_bench("swiglu").sampled({{"rows", 3000}, {"cols", 64}}, few());
  const SampledResult r = check_broken(c, [](RankContext& ctx, std::span<const CaseArgument> in) {
    const Tensor y = swiglu(ctx, in[0].tensor, in[1].tensor);
    if (!ctx.device().is_meta()) in[1].tensor.data<float>()[0] += 3;  // saved for backward by reference
    return y;
  });
  EXPECT_FALSE(r.passed);
  EXPECT_EQ(r.reason.find("y is off"), std::string::npos) << r.reason;
  EXPECT_NE(r.reason.find("dgate is off by"), std::string::npos) << r.reason;
}

TEST(SampledCheck, AWeightGradientThatForgetsTheLastRowsIsFound) {
  const SampledCase c = find_op_bench("linear").sampled({{"rows", 700}, {"in", 48}, {"out", 40}}, few());
  const SampledResult r = check_broken(c, [](RankContext& ctx, std::span<const CaseArgument> in) {
    const Tensor y = linear(ctx, in[0].tensor, *in[1].param);
    if (ctx.device().is_meta()) return y;
    float* last = in[0].tensor.data<float>() + 699 * 48;
    std::fill(last, last + 48, 0.0f);
    return y;
  });
  EXPECT_FALSE(r.passed);
  EXPECT_NE(r.reason.find("dweight is off by"), std::string::npos) << r.reason;
}

TEST(SampledCheck, AttentionThatSeesAKeyTooManyIsFound) {
  const OpBench bench = find_op_bench("attention");
  const BenchShape shape{{"batch", 2},    {"seq", 130}, {"kv_seq", 0}, {"heads", 4},
                         {"kv_heads", 2}, {"dim", 16},  {"full", 0}};
  BenchShape full = shape;
  full.set("full", 1);
  SampledCase c = bench.sampled(shape, few());
  c.whole = bench.make(full);
  RankContext ctx(here("attention", "flash"));
  const SampledResult r = SampledReference(c, DType::f32, 3, 1).check(ctx);
  EXPECT_FALSE(r.passed);
}

}  // namespace
}  // namespace kiln
