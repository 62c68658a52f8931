// The policies by name, and the bytes each holds for a parameter, as the allocator counts them.
#include "autograd/precision.h"

#include <gtest/gtest.h>

#include "autograd/param_store.h"
#include "optim/adamw_optimizer.h"

namespace kiln {
namespace {

TEST(Precision, NamesGoBothWays) {
  for (Precision p :
       {Precision::fp32, Precision::bf16, Precision::autocast, Precision::pure_bf16, Precision::fp16})
    EXPECT_EQ(parse_precision("--precision", name_of(p)), p);
}

TEST(Precision, AnUnknownNameIsAnsweredWithTheNearest) {
  auto said = [](std::string_view text) {
    try {
      (void)parse_precision("--precision", text);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage);
      return cat(e.what(), " | ", e.hint());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(said("fp61"),
            "--precision is 'fp61'; expected one of: fp32, bf16, autocast, pure-bf16, fp16 | did you mean "
            "'fp16'?");
  EXPECT_NE(said("pure_bf16").find("did you mean 'pure-bf16'?"), std::string::npos);
  EXPECT_NE(said("AUTOCAST").find("did you mean 'autocast'?"), std::string::npos);
  EXPECT_NE(said("fp64").find("expected one of"), std::string::npos);  // for gradient checks alone
  EXPECT_NE(said("").find("expected one of"), std::string::npos);
}

struct Bytes4 {
  double param, master, grad, optim;
};

// A matrix so large that padding and the segment table are negligible.
Bytes4 bytes_per_parameter(Precision precision, bool narrow_grads) {
  RankOptions o;
  o.device = Device::meta();
  RankContext ctx(o);
  ParamStore store;
  store.add("w", {4096, 4096}, {});
  store.materialize(ctx, {.precision = precision, .narrow_grads = narrow_grads});
  const AdamWOptimizer optimizer(ctx, store.spans(), {});
  const MemoryStats s = ctx.allocator().stats();
  auto each = [&](Tag t) { return static_cast<double>(s.live[t]) / (4096.0 * 4096.0); };
  return {each(Tag::param), each(Tag::master), each(Tag::grad), each(Tag::optim)};
}

TEST(Precision, BytesOfAParameterAreAsThePolicySays) {
  struct Row {
    Precision precision;
    bool narrow;
    Bytes4 wanted;
    double total;
  };
  for (const Row& r :
       {Row{Precision::fp32, true, {4, 0, 4, 8}, 16}, Row{Precision::bf16, true, {2, 2, 2, 8}, 14},
        Row{Precision::bf16, false, {2, 2, 4, 8}, 16}, Row{Precision::autocast, true, {0, 4, 4, 8}, 16},
        Row{Precision::pure_bf16, false, {2, 0, 2, 4}, 8}, Row{Precision::fp16, true, {0, 4, 4, 8}, 16},
        Row{Precision::fp64, true, {8, 0, 8, 16}, 32}}) {
    const Bytes4 got = bytes_per_parameter(r.precision, r.narrow);
    EXPECT_NEAR(got.param, r.wanted.param, 1e-3) << name_of(r.precision);
    EXPECT_NEAR(got.master, r.wanted.master, 1e-3) << name_of(r.precision);
    EXPECT_NEAR(got.grad, r.wanted.grad, 1e-3) << name_of(r.precision);
    EXPECT_NEAR(got.optim, r.wanted.optim, 1e-3) << name_of(r.precision);
    EXPECT_EQ(state_bytes_per_parameter(policy_of(r.precision, r.narrow)), r.total) << name_of(r.precision);
  }
}

// A cast at use is a separate tensor while it is used, and nothing after.
TEST(Precision, ACastAtUseCostsTwoBytesWhileItLives) {
  for (Precision precision : {Precision::autocast, Precision::fp16}) {
    RankContext ctx;
    ParamStore store;
    Param& p = store.add("w", {33, 65}, {});
    store.materialize(ctx, {precision, false});
    const DType narrow = policy_of(precision).compute;
    {
      const ParamUse as_kept(ctx, p, DType::f32, false), cast(ctx, p, narrow, false);
      EXPECT_EQ(as_kept.tensor().raw(), p.value.raw());
      EXPECT_EQ(cast.tensor().dtype(), narrow);
      EXPECT_GE(ctx.allocator().stats().live[Tag::param], 2u * 33 * 65);
    }
    EXPECT_EQ(ctx.allocator().stats().live[Tag::param], 0u);
    // Any other dtype is a mistake: it is left as it is, and the op says so.
    const ParamUse other(ctx, p, narrow == DType::bf16 ? DType::f16 : DType::bf16, false);
    EXPECT_EQ(other.tensor().dtype(), DType::f32);
  }
}

}  // namespace
}  // namespace kiln
