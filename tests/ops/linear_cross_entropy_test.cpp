// Head and loss as one op, where the shared cases are too small to look: several chunks, and what is kept.
#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include "autograd/tape.h"
#include "op_cases/run_case.h"

namespace kiln {
namespace {

OpCase many_chunks() {  // 150 rows of 33001 logits: 19 MiB, three chunks
  using K = CaseInput::Kind;
  CaseInput ids{"targets", K::ids, {150}};
  ids.ids_below = 33001;
  ids.ignore_every = 7;
  return {"linear_cross_entropy",
          "many_chunks",
          {{"x", K::activation, {150, 3}}, {"weight", K::param, {33001, 3}}, ids},
          [](RankContext& ctx, std::span<const CaseArgument> in) {
            return linear_cross_entropy(ctx, in[0].tensor, *in[1].param, in[2].tensor);
          }};
}

CaseResult run(const char* variant, DType dtype, Device device = Device::cpu()) {
  RankOptions o;
  o.device = device;
  o.variants.set("linear_cross_entropy", variant);
  RankContext ctx(o);
  const OpCase c = many_chunks();
  return run_case(ctx, c, draw_case(c, DType::bf16, 3), dtype);
}

TEST(LinearCrossEntropy, ChunksAddUpToTheWhole) {
  const CaseResult exact = run("composed", DType::f64);
  for (const auto& [dtype, bound] : {std::pair(DType::f32, 1e-5), std::pair(DType::bf16, 1e-2)}) {
    const CaseResult fused = run("fused", dtype);
    EXPECT_LE(relative_error(fused.y, exact.y), bound) << name_of(dtype);
    EXPECT_LE(relative_error(fused.grads[0], exact.grads[0]), bound) << name_of(dtype);
    EXPECT_LE(relative_error(fused.grads[1], exact.grads[1]), bound) << name_of(dtype);
  }
}

TEST(LinearCrossEntropy, TheLogitsNeverExistWhole) {
  const std::size_t logits = 150 * 33001 * sizeof(float);
  EXPECT_LT(run("fused", DType::f32, Device::meta()).memory.peak_total, logits);
  EXPECT_GT(run("composed", DType::f32, Device::meta()).memory.peak_total, 2 * logits);
}

TEST(LinearCrossEntropy, WithoutRecordingThereIsOnlyTheLoss) {
  auto loss_alone = [](Device device, double* loss) {
    RankOptions o;
    o.device = device;
    RankContext ctx(o);
    const OpCase c = many_chunks();
    const CaseResult r = run_case(ctx, c, draw_case(c, DType::bf16, 3), DType::f32, {.backward = false});
    if (!r.y.empty()) *loss = r.y[0];
    return r.memory.peak;
  };
  double loss = 0;
  const auto seen = loss_alone(Device::cpu(), &loss);
  EXPECT_EQ(loss, run("fused", DType::f32).y[0]);
  EXPECT_EQ(seen, loss_alone(Device::meta(), &loss));
  EXPECT_LT(seen[Tag::activation], 4096u);
}

}  // namespace
}  // namespace kiln
