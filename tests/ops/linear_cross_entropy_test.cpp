// Head and loss as one op, where the shared cases are too small to look: several chunks, and what is kept.
#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autograd/tape.h"
#include "ops/cases/run_case.h"
#include "ops/linear_cross_entropy/cuda_chunks.h"

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

TEST(LinearCrossEntropy, OnCudaTheScratchStaysSmallAndTheMatmulsLarge) {
  const auto chunks = [](int64_t rows, int64_t in, int64_t vocab) {
    return CudaLossChunks({rows, in, vocab, DType::bf16, true, true});
  };
  const CudaLossChunks mid = chunks(8192, 4096, 32000), wide = chunks(8192, 4096, 151936);
  EXPECT_LE(mid.total, std::size_t{300} << 20);
  EXPECT_LE(wide.total, std::size_t{1331} << 20);  // 1.3 GiB
  EXPECT_EQ(mid.rows, 4096);
  EXPECT_EQ(wide.rows, 4096);
  EXPECT_EQ(chunks(2048, 768, 10000).rows, 2048);  // one chunk
  EXPECT_EQ(chunks(5, 3, 7).rows, 5);
  EXPECT_EQ(chunks(0, 3, 7).total, 0u);
}

TEST(LinearCrossEntropy, AChunkIsNeverLargerThanAskedFor) {
  for (int64_t asked : {1, 5, 100, 127, 300, 4000}) {
    for (int64_t rows : {1, 7, 256, 301}) {
      const CudaLossChunks c(LinearCrossEntropyProblem{rows, 8, 50257, DType::bf16, true, true, asked});
      EXPECT_GE(c.rows, 1);
      EXPECT_LE(c.rows, std::min(asked, rows));
      EXPECT_GE(c.row_stride, 50257);
      EXPECT_EQ(c.row_stride * 2 % 128, 0);
    }
  }
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
