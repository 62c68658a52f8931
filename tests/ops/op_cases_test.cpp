// Every case of every op: gradients against finite differences, low precision against fp64, accumulation,
// thread-count invariance, guarded memory, and meta's bytes. On a GPU also CUDA against the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ops/cases/run_case.h"
#include "ops/op_list.h"
#include "support/gpu.h"

namespace kiln {
namespace {

constexpr uint64_t kSeed = 7;

RankOptions on(Device d, int threads = 1) {
  RankOptions o;
  o.device = d;
  o.threads = threads;
  return o;
}

std::string label(const testing::TestParamInfo<OpCase>& info) {
  return info.param.op + "_" + info.param.name;
}

class OpCases : public testing::TestWithParam<OpCase> {};

TEST_P(OpCases, GradientMatchesFiniteDifferences) {
  const OpCase& c = GetParam();
  RankContext ctx(on(Device::cpu()));
  const CaseData data = draw_case(c, DType::f64, kSeed);
  const CaseResult analytic = run_case(ctx, c, data, DType::f64);
  auto objective = [&](const CaseData& d) {
    const std::vector<double> y = run_case(ctx, c, d, DType::f64, {.backward = false}).y;
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * data.dy[i];
    return sum;
  };
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.inputs[i].kind == CaseInput::Kind::ids) continue;
    const std::size_t n = data.inputs[i].size();
    const std::size_t stride =
        n <= 200 ? 1 : n / 97;  // large inputs: a sample that hits every row sooner or later
    std::vector<double> numeric, expected;
    for (std::size_t at = 0; at < n; at += stride) {
      const double h = 1e-5 * static_cast<double>(c.inputs[i].scale);
      CaseData moved = data;
      moved.inputs[i][at] = data.inputs[i][at] + h;
      const double up = objective(moved);
      moved.inputs[i][at] = data.inputs[i][at] - h;
      numeric.push_back((up - objective(moved)) / (2 * h));
      expected.push_back(analytic.grads[i][at]);
    }
    double scale = 0;
    for (double g : expected) scale = std::max(scale, std::abs(g));
    for (std::size_t k = 0; k < numeric.size(); ++k) {
      ASSERT_NEAR(numeric[k], expected[k], 1e-6 * std::max(1.0, scale))
          << c.inputs[i].name << " element " << k * stride;
    }
  }
}

// R19's bounds: forward 1e-5 and backward 1e-4 in fp32, 2e-2 in bf16 (8 bits of mantissa), fp16 between.
TEST_P(OpCases, LowPrecisionStaysNearFp64) {
  const OpCase& c = GetParam();
  RankContext ctx(on(Device::cpu()));
  const std::map<DType, std::pair<double, double>> bounds = {
      {DType::f32, {1e-5, 1e-4}}, {DType::bf16, {2e-2, 2e-2}}, {DType::f16, {3e-3, 3e-3}}};
  for (const auto& [dtype, bound] : bounds) {
    const CaseData data = draw_case(c, dtype, kSeed);
    const CaseResult reference = run_case(ctx, c, data, DType::f64), low = run_case(ctx, c, data, dtype);
    EXPECT_LE(relative_error(low.y, reference.y), bound.first) << name_of(dtype);
    for (std::size_t i = 0; i < low.grads.size(); ++i) {
      EXPECT_LE(relative_error(low.grads[i], reference.grads[i]), bound.second)
          << name_of(dtype) << " d" << c.inputs[i].name;
    }
  }
}

// g + g = 2g exactly in every binary format, so a second pass must give exactly twice the first.
void expect_second_pass_adds(RankContext& ctx, const OpCase& c, DType dtype) {
  const CaseData data = draw_case(c, dtype, kSeed);
  const CaseResult once = run_case(ctx, c, data, dtype), twice = run_case(ctx, c, data, dtype, {.times = 2});
  for (std::size_t i = 0; i < once.grads.size(); ++i) {
    for (std::size_t k = 0; k < once.grads[i].size(); ++k) {
      ASSERT_EQ(2 * once.grads[i][k], twice.grads[i][k]) << c.inputs[i].name << " element " << k;
    }
  }
}

TEST_P(OpCases, SecondPassAdds) {
  // One input twice in a call adds to itself within a pass, where g1 + g2 + g1 is not exact in bf16.
  RankContext ctx(on(Device::cpu()));
  expect_second_pass_adds(ctx, GetParam(), DType::f32);
  expect_second_pass_adds(ctx, GetParam(), DType::bf16);
  expect_second_pass_adds(ctx, GetParam(), DType::f16);
}

TEST_P(OpCases, SameBitsForAnyNumberOfThreads) {
  const OpCase& c = GetParam();
  const CaseData data = draw_case(c, DType::f32, kSeed);
  RankContext one(on(Device::cpu(), 1));
  const CaseResult reference = run_case(one, c, data, DType::f32);
  for (int threads : {2, 3}) {
    RankContext many(on(Device::cpu(), threads));
    const CaseResult r = run_case(many, c, data, DType::f32);
    EXPECT_EQ(r.y, reference.y);
    EXPECT_EQ(r.grads, reference.grads);
  }
}

TEST_P(OpCases, StaysInsideItsBuffers) {  // guard bytes around every allocation; a damaged one aborts
  RankOptions o = on(Device::cpu(), 2);
  o.alloc_mode = AllocMode::raw;
  RankContext ctx(o);
  const CaseData data = draw_case(GetParam(), DType::bf16, kSeed);
  const CaseResult r = run_case(ctx, GetParam(), data, DType::bf16);
  EXPECT_EQ(r.y.size(), data.dy.size());
}

void expect_meta_predicts(Device real, Device meta, const OpCase& c) {
  RankContext a(on(real)), b(on(meta));
  const CaseData data = draw_case(c, DType::bf16, kSeed);
  const MemoryStats seen = run_case(a, c, data, DType::bf16).memory,
                    predicted = run_case(b, c, data, DType::bf16).memory;
  EXPECT_EQ(seen.peak, predicted.peak);
  EXPECT_EQ(seen.live, predicted.live);
  EXPECT_EQ(seen.peak_total, predicted.peak_total);
}

TEST_P(OpCases, MetaPredictsTheBytes) { expect_meta_predicts(Device::cpu(), Device::meta(), GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, OpCases, testing::ValuesIn(all_op_cases()), label);

// Every op by its definition: naive, or for an op that has no naive composed of ops that do.
void choose_definitions(VariantChoice& choice) {
  for (const OpListing& op : list_ops()) {
    const bool naive = std::any_of(op.variants.begin(), op.variants.end(), [](const VariantListing& v) {
      return v.device == DeviceType::cpu && v.name == "naive";
    });
    choice.set(op.name, naive ? "naive" : "composed");
  }
}

// What the definition gives for a case in a format, and in fp64 from the same values. Every variant and every
// instruction set is held against the same two, so they are computed once.
struct DefinitionRun {
  CaseData data;
  CaseResult reference, low;
};

class DefinitionRuns {
 public:
  explicit DefinitionRuns(const OpCase& c) : case_(c), ctx_(on(Device::cpu(), 2)) {
    choose_definitions(ctx_.variants());
  }

  const DefinitionRun& in(DType dtype) {
    const auto known = runs_.find(dtype);
    if (known != runs_.end()) return known->second;
    DefinitionRun run;
    run.data = draw_case(case_, dtype, kSeed);
    run.reference = run_case(ctx_, case_, run.data, DType::f64);
    run.low = run_case(ctx_, case_, run.data, dtype);
    return runs_.emplace(dtype, std::move(run)).first->second;
  }

 private:
  const OpCase& case_;
  RankContext ctx_;
  std::map<DType, DefinitionRun> runs_;
};

// The error rule: at most twice as far from fp64 as the definition in low precision, and a floor for outputs
// that it happens to get exactly.
void expect_as_good(const OpCase& c, const CaseResult& fast, const DefinitionRun& definition, double floor) {
  const CaseResult &reference = definition.reference, &low = definition.low;
  EXPECT_LE(relative_error(fast.y, reference.y), 2 * relative_error(low.y, reference.y) + floor);
  for (std::size_t i = 0; i < fast.grads.size(); ++i) {
    EXPECT_LE(relative_error(fast.grads[i], reference.grads[i]),
              2 * relative_error(low.grads[i], reference.grads[i]) + floor)
        << " d" << c.inputs[i].name;
  }
}

// The floor on the CPU is a quarter of the format's spacing. A composed variant stores what is between its
// parts and rounds it each time: its floor is the whole spacing.
double cpu_floor(DType dtype, std::string_view variant) {
  const std::map<DType, double> spacing = {
      {DType::f32, 0x1p-23}, {DType::bf16, 0x1p-7}, {DType::f16, 0x1p-10}};
  return spacing.at(dtype) / (variant == "composed" || variant == "compiled" ? 1 : 4);
}

// Some variants are for a shape of their own.
bool takes_case(const OpCase& c, const std::string& variant) {
  RankOptions o = on(Device::meta());
  o.variants.set(c.op, variant);
  RankContext ctx(o);
  try {
    (void)run_case(ctx, c, draw_case(c, DType::f32, kSeed), DType::f32);
  } catch (const Error& e) {
    if (std::string_view(e.what()).find("takes at most") != std::string_view::npos) return false;
    throw;
  }
  return true;
}

// f(variant) for each CPU variant of the case's op but the definition.
template <class F>
void on_other_cpu_variants(const OpCase& c, F f) {
  const std::vector<OpListing> ops = list_ops();
  for (const VariantListing& v : find_op(ops, c.op).variants) {
    if (v.device == DeviceType::cpu && v.name != "naive" && takes_case(c, v.name)) f(v.name);
  }
}

TEST_P(OpCases, EveryVariantOnEveryIsaAgreesWithNaive) {
  const OpCase& c = GetParam();
  DefinitionRuns definition(c);
  on_other_cpu_variants(c, [&](const std::string& variant) {
    for (int isa = 0; isa <= static_cast<int>(best_cpu_isa()); ++isa) {
      RankOptions o = on(Device::cpu(), 1);
      o.cpu_isa = static_cast<CpuIsa>(isa);
      o.variants.set(c.op, variant);
      o.alloc_mode = AllocMode::raw;  // guards around every buffer
      RankContext one(o);
      o.threads = 3;
      RankContext three(o);
      for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        SCOPED_TRACE(cat(variant, " ", name_of(*o.cpu_isa), " ", name_of(dtype)));
        const DefinitionRun& known = definition.in(dtype);
        const CaseResult fast = run_case(one, c, known.data, dtype);
        expect_as_good(c, fast, known, cpu_floor(dtype, variant));
        const CaseResult on_three = run_case(three, c, known.data, dtype);
        EXPECT_EQ(fast.y, on_three.y);
        EXPECT_EQ(fast.grads, on_three.grads);
      }
    }
  });
}

TEST_P(OpCases, EveryVariantAddsItsSecondPassInTheBytesMetaPredicts) {
  const OpCase& c = GetParam();
  on_other_cpu_variants(c, [&](const std::string& variant) {
    SCOPED_TRACE(variant);
    RankOptions o = on(Device::cpu()), m = on(Device::meta());
    o.variants.set(c.op, variant);
    m.variants.set(c.op, variant);
    RankContext real(o), meta(m);
    const CaseData data = draw_case(c, DType::bf16, kSeed);
    EXPECT_EQ(run_case(real, c, data, DType::bf16).memory.peak,
              run_case(meta, c, data, DType::bf16).memory.peak);
    const CaseData wide = draw_case(c, DType::f32, kSeed);
    const CaseResult once = run_case(real, c, wide, DType::f32),
                     twice = run_case(real, c, wide, DType::f32, {.times = 2});
    for (std::size_t i = 0; i < once.grads.size(); ++i) {
      std::vector<double> doubled = once.grads[i];
      for (double& g : doubled) g *= 2;
      EXPECT_LE(relative_error(twice.grads[i], doubled), 1e-6) << " d" << c.inputs[i].name;
    }
  });
}

RankOptions on_cuda(Device device, const OpCase& c, const std::string& variant) {
  RankOptions o = on(device);
  o.variants.set(c.op, variant);
  return o;
}

// Whether a CUDA variant takes a case in a format, by its own word: many are for some widths and formats.
bool cuda_takes(const OpCase& c, const std::string& variant, DType dtype) {
  RankContext ctx(on_cuda(Device::meta(DeviceType::cuda), c, variant));
  try {
    (void)run_case(ctx, c, draw_case(c, dtype, kSeed), dtype);
  } catch (const Error& e) {
    if (std::string_view(e.what()).find(cat(variant, " (cuda): ")) != std::string_view::npos) return false;
    throw;
  }
  return true;
}

constexpr DType kFormats[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

std::vector<std::string> cuda_variants(const std::string& op) {
  std::vector<std::string> names;
  const std::vector<OpListing> ops = list_ops();
  for (const VariantListing& v : find_op(ops, op).variants) {
    if (v.device == DeviceType::cuda) names.emplace_back(v.name);
  }
  return names;
}

class CudaOpCases : public testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override {
    KILN_NEEDS_GPU();
    if (cuda_variants(GetParam().op).empty()) GTEST_SKIP() << GetParam().op << " has no CUDA variant yet";
  }

  // f(variant, format) for each pair that takes this case.
  template <class F>
  void on_every_variant(F f) {
    for (const std::string& variant : cuda_variants(GetParam().op)) {
      for (DType dtype : kFormats) {
        SCOPED_TRACE(cat(variant, " ", name_of(dtype)));
        if (cuda_takes(GetParam(), variant, dtype)) f(variant, dtype);
      }
    }
  }
};

// A variant that is refused by all cases would pass every test below.
TEST(CudaVariants, EachTakesSomeCaseOfItsOp) {
  std::map<std::string, bool> taken;
  for (const OpCase& c : all_op_cases()) {
    for (const std::string& variant : cuda_variants(c.op)) {
      bool& seen = taken[c.op + "=" + variant];
      for (DType dtype : kFormats) seen = seen || cuda_takes(c, variant, dtype);
    }
  }
  EXPECT_GT(taken.size(), 15u);
  for (const auto& [name, seen] : taken) EXPECT_TRUE(seen) << name;
}

// The error rule's floor on a GPU is half the format's spacing; the whole spacing for a composed variant, as
// on the CPU. TF32 keeps 11 bits of its operands. fp64 has no wider reference: long sums run in another
// order, and an angle of rope is a position times a power whose last bit may differ, so far positions lose
// digits (1.6e-12 seen).
double cuda_floor(DType dtype, const std::string& variant) {
  const std::map<DType, double> spacing = {
      {DType::f64, 0x1p-52}, {DType::f32, 0x1p-23}, {DType::bf16, 0x1p-7}, {DType::f16, 0x1p-10}};
  const bool coarse = variant.ends_with("_tf32");
  const double ulp = coarse ? 0x1p-10 : spacing.at(dtype);
  if (dtype == DType::f64) return 65536 * ulp;
  return ulp / (variant == "composed" || variant == "compiled" || coarse ? 1 : 2);
}

TEST_P(CudaOpCases, AsGoodAsTheCpu) {
  const OpCase& c = GetParam();
  DefinitionRuns definition(c);
  on_every_variant([&](const std::string& variant, DType dtype) {
    RankContext gpu(on_cuda(Device::cuda(), c, variant));
    const DefinitionRun& known = definition.in(dtype);
    expect_as_good(c, run_case(gpu, c, known.data, dtype), known, cuda_floor(dtype, variant));
  });
}

TEST_P(CudaOpCases, SecondPassAdds) {
  on_every_variant([&](const std::string& variant, DType dtype) {
    RankContext ctx(on_cuda(Device::cuda(), GetParam(), variant));
    const CaseData data = draw_case(GetParam(), dtype, kSeed);
    const CaseResult once = run_case(ctx, GetParam(), data, dtype),
                     twice = run_case(ctx, GetParam(), data, dtype, {.times = 2});
    // A library may sum in another order when it adds, and a sum of two roundings is rounded again.
    const double bound = dtype == DType::bf16 ? 0x1p-7 : dtype == DType::f16 ? 0x1p-10 : 1e-6;
    for (std::size_t i = 0; i < once.grads.size(); ++i) {
      std::vector<double> doubled = once.grads[i];
      for (double& g : doubled) g *= 2;
      EXPECT_LE(relative_error(twice.grads[i], doubled), bound);
    }
  });
}

TEST_P(CudaOpCases, SameBitsTwice) {
  on_every_variant([&](const std::string& variant, DType dtype) {
    if (variant.find("atomic") != std::string::npos) return;  // its name says that it need not
    const CaseData data = draw_case(GetParam(), dtype, kSeed);
    RankContext a(on_cuda(Device::cuda(), GetParam(), variant)),
        b(on_cuda(Device::cuda(), GetParam(), variant));
    const CaseResult first = run_case(a, GetParam(), data, dtype),
                     second = run_case(b, GetParam(), data, dtype);
    EXPECT_EQ(first.y, second.y);
    EXPECT_EQ(first.grads, second.grads);
  });
}

TEST_P(CudaOpCases, MetaPredictsTheBytes) {
  on_every_variant([&](const std::string& variant, DType dtype) {
    RankContext real(on_cuda(Device::cuda(), GetParam(), variant)),
        meta(on_cuda(Device::meta(DeviceType::cuda), GetParam(), variant));
    const CaseData data = draw_case(GetParam(), dtype, kSeed);
    const MemoryStats seen = run_case(real, GetParam(), data, dtype).memory,
                      predicted = run_case(meta, GetParam(), data, dtype).memory;
    EXPECT_EQ(seen.peak, predicted.peak);
    EXPECT_EQ(seen.live, predicted.live);
    EXPECT_EQ(seen.peak_total, predicted.peak_total);
  });
}

INSTANTIATE_TEST_SUITE_P(All, CudaOpCases, testing::ValuesIn(all_op_cases()), label);

}  // namespace
}  // namespace kiln
