// The CUDA sources: their form, and, where the toolkit's NVRTC is at hand, that they compile for Ampere and
// Hopper.
#include <gtest/gtest.h>

#include <cmath>

#include "compile/cuda_source/emit.h"
#include "compile/cuda_source/nvrtc.h"
#include "compile/plan.h"
#include "compile/trace.h"
#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/cast/cast.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/masked_softmax/masked_softmax.h"
#include "ops/rope/rope.h"
#include "ops/swiglu/swiglu.h"

namespace kiln::compile {
namespace {

struct SourceCase {
  const char* name;
  Region region;
  RegionInputs in;
  std::vector<char> wanted;
};

// Every kind of kernel: norms, rotations of two widths, gating, a mask, a loss with a sum over all rows.
class CudaSource : public testing::TestWithParam<DType> {
 protected:
  CudaSource() : ctx(options()) {
    weight.shape = bias.shape = {96};
    for (Param* p : {&weight, &bias}) {
      p->name = "weight";
      p->kept = GetParam();
      p->value = ctx.empty({96}, GetParam());
    }
  }
  static RankOptions options() {
    RankOptions o;
    o.device = Device::meta();
    return o;
  }
  Tensor of(const Shape& s) { return ctx.empty(s, GetParam()); }

  std::vector<SourceCase> cases() {
    const DType dtype = GetParam();
    return {
        {"norm",
         {"norm",
          {},
          [dtype](RankContext& c, const RegionInputs& in) {
            const AddRmsNormResult r = add_rms_norm(c, in.tensors[0], in.tensors[1], in.params[0], 1e-5f);
            return Tensors{r.sum, cast(c, r.normed, dtype == DType::f32 ? DType::bf16 : dtype)};
          }},
         {{of({2, 8, 96}), of({2, 8, 96})}, {ParamRef(weight)}},
         {1, 1, 1}},
        {"layer_norm",
         {"layer_norm",
          {},
          [](RankContext& c, const RegionInputs& in) {
            return Tensors{layer_norm(c, in.tensors[0], in.params[0], in.params[1], 1e-5f)};
          }},
         {{of({16, 96})}, {ParamRef(weight), ParamRef(bias)}},
         {1, 1, 1}},
        {"rope",
         {"rope",
          {},
          [](RankContext& c, const RegionInputs& in) {
            const RopeResult r = rope(c, in.tensors[0], in.tensors[1], {.heads = 6, .kv_heads = 2});
            return Tensors{r.q, r.k};
          }},
         {{of({2, 8, 96}), of({2, 8, 32})}, {}},
         {1, 1}},
        {"rope_interleaved",
         {"rope_interleaved",
          {},
          [](RankContext& c, const RegionInputs& in) {
            const RopeResult r =
                rope(c, in.tensors[0], in.tensors[1], {.heads = 3, .kv_heads = 1, .interleaved = true});
            return Tensors{r.q, r.k};
          }},
         {{of({2, 8, 66}), of({2, 8, 22})}, {}},
         {1, 1}},
        {"swiglu",
         {"swiglu",
          {},
          [](RankContext& c, const RegionInputs& in) {
            return Tensors{swiglu(c, in.tensors[0], in.tensors[1])};
          }},
         {{of({16, 2047}), of({16, 2047})}, {}},
         {1, 1}},
        {"masked",
         {"masked",
          {},
          [](RankContext& c, const RegionInputs& in) {
            return Tensors{masked_softmax(c, in.tensors[0], {.scale = 0.125f})};
          }},
         {{of({4, 64, 64})}, {}},
         {1}},
        {"loss",
         {"loss",
          {},
          [](RankContext& c, const RegionInputs& in) {
            return Tensors{cross_entropy(c, in.tensors[0], in.tensors[1])};
          }},
         {{of({16, 32000}), ctx.empty({16}, DType::i32)}, {}},
         {1, 0}},
    };
  }

  RankContext ctx;
  Param weight, bias;
};

TEST_P(CudaSource, NamesEveryMemoryAndBalancesItsBraces) {
  for (const SourceCase& c : cases()) {
    const Traced t = trace(c.region, c.in);
    const RegionPlan plan = plan_region(t, c.wanted);
    check_program(plan.forward);
    check_program(plan.backward);
    for (const Program* p : {&plan.forward, &plan.backward}) {
      for (const CudaKernel& k : emit_cuda(*p, c.name)) {
        EXPECT_EQ(std::count(k.source.begin(), k.source.end(), '{'),
                  std::count(k.source.begin(), k.source.end(), '}'))
            << k.source;
        for (const CudaArgument& a : k.arguments)
          EXPECT_NE(k.source.find(cat("* __restrict__ m", a.value, ",")), std::string::npos) << k.source;
      }
    }
  }
}

TEST_P(CudaSource, CompilesForAmpereAndHopper) {
  std::string why;
  const std::unique_ptr<Nvrtc> nvrtc = Nvrtc::load(&why);
  if (nvrtc == nullptr) GTEST_SKIP() << why;
  for (const SourceCase& c : cases()) {
    const RegionPlan plan = plan_region(trace(c.region, c.in), c.wanted);
    std::string source(cuda_prelude());
    for (const CudaKernel& k : emit_cuda(plan.forward, cat(c.name, "_forward"))) source += k.source;
    for (const CudaKernel& k : emit_cuda(plan.backward, cat(c.name, "_backward"))) source += k.source;
    for (const char* arch : {"sm_80", "sm_90a"}) {
      try {
        EXPECT_GT(nvrtc->compile(source, c.name, arch).size(), 100u);
      } catch (const Error& e) {
        ADD_FAILURE() << e.what() << "\n" << e.hint() << "\n" << source;
      }
    }
  }
  EXPECT_THROW((void)nvrtc->compile("no C++", "broken", "sm_80"), Error);
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaSource, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& p) { return std::string(name_of(p.param)); });

}  // namespace
}  // namespace kiln::compile
