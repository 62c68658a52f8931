// A row never lies about its code: every case of every op, on every variant, starts kernels of that variant's
// own list and no others; and what meta plans is what runs.
#include <gtest/gtest.h>

#include "ops/add/add.h"
#include "ops/cases/bench_case.h"
#include "ops/cases/run_case.h"
#include "ops/op_call.h"
#include "support/gpu.h"
#include "support/kernel_watch.h"

namespace kiln {
namespace {

constexpr uint64_t kSeed = 11;
constexpr DType kFormats[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

// The cases, and each bench's op on a small shape: the optimizers have no cases.
std::vector<OpCase> cases_of(std::string_view op) {
  std::vector<OpCase> cases;
  for (OpCase& c : all_op_cases()) {
    if (c.op == op) cases.push_back(std::move(c));
  }
  for (const OpBench& b : all_op_benches()) {
    if (b.op == op) cases.push_back(b.make(b.check_shape(b.shapes.front())));
  }
  return cases;
}

RankOptions on(Device device, std::string_view op, std::string_view variant) {
  RankOptions o;
  o.device = device;
  o.threads = 1;
  if (!variant.empty()) o.variants.set(op, variant);
  return o;
}

bool has_backward(const OpCase& c) { return c.op != "adamw" && c.op != "sgd" && c.op != "square_sum"; }

// What each call takes and starts; nothing where the variant refuses the case on meta.
struct Run {
  std::vector<std::string> planned, calls, strangers;
  std::set<std::string> seen;
};

Run run(Device device, const OpCase& c, std::string_view variant, DType dtype) {
  const CaseData data = draw_case(c, dtype, kSeed);
  const CaseOptions options{.backward = has_backward(c)};
  Run r;
  try {
    RankContext meta(on(Device::meta(device.target), c.op, variant));
    const KernelWatch watch(meta);
    (void)run_case(meta, c, data, dtype, options);
    r.planned = watch.calls();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::unavailable) throw;
    return r;
  }
  RankContext ctx(on(device, c.op, variant));
  const KernelWatch watch(ctx);
  (void)run_case(ctx, c, data, dtype, options);
  r.calls = watch.calls();
  r.strangers = watch.strangers();
  r.seen = watch.seen();
  return r;
}

// `variant` empty: as a run takes it, by itself.
void expect_own_kernels(Device device, const OpListing& op, std::string_view variant,
                        std::set<std::string>& seen) {
  for (const OpCase& c : cases_of(op.name)) {
    for (DType dtype : kFormats) {
      SCOPED_TRACE(cat(c.op, " ", c.name, " ", variant, " ", name_of(dtype)));
      const Run r = run(device, c, variant, dtype);
      EXPECT_EQ(r.planned, r.calls);
      for (const std::string& stranger : r.strangers) ADD_FAILURE() << stranger;
      seen.insert(r.seen.begin(), r.seen.end());
    }
  }
}

void check_every_variant(Device device, const std::string& name) {
  const std::vector<OpListing> ops = list_ops();
  const OpListing& op = find_op(ops, name);
  std::set<std::string> seen;
  expect_own_kernels(device, op, "", seen);
  for (const VariantListing& v : op.variants) {
    if (v.device != device.type) continue;
    expect_own_kernels(device, op, v.name, seen);
    // What starts nothing that is known passes everything above.
    const bool starts_some = v.available && !v.kernels.forward.empty();
    EXPECT_TRUE(!starts_some || seen.contains(cat(op.name, "=", v.name)))
        << v.name << " was never seen to start a kernel";
  }
}

std::vector<std::string> ops_with_cases() {
  std::vector<std::string> names;
  for (const OpListing& op : list_ops()) {
    if (!cases_of(op.name).empty()) names.emplace_back(op.name);
  }
  return names;
}

std::string label(const testing::TestParamInfo<std::string>& info) { return info.param; }

class KernelLists : public testing::TestWithParam<std::string> {};

TEST_P(KernelLists, EveryVariantStartsItsOwnKernelsAlone) { check_every_variant(Device::cpu(), GetParam()); }

INSTANTIATE_TEST_SUITE_P(Ops, KernelLists, testing::ValuesIn(ops_with_cases()), label);

class CudaKernelLists : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

TEST_P(CudaKernelLists, EveryVariantStartsItsOwnKernelsAlone) {
  check_every_variant(Device::cuda(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Ops, CudaKernelLists, testing::ValuesIn(ops_with_cases()), label);

TEST(KernelNames, AreTakenByTheirBeginningsUpToTheEndOfAWord) {
  const std::string kernel =
      plain_kernel("void kiln::tiled::grad_kernel<kiln::(anonymous namespace)::Skip, float>(kiln::Problem)");
  EXPECT_EQ(kernel, "tiled::grad_kernel<Skip, float>(Problem)");
  EXPECT_TRUE(on_list(kernel, "other tiled::grad_kernel"));
  EXPECT_TRUE(on_list(kernel, "tiled::grad_kernel<Skip,"));
  EXPECT_FALSE(on_list(kernel, "tiled::grad_kernel<Ski"));
  EXPECT_FALSE(on_list(kernel, "tiled::grad"));
  EXPECT_FALSE(on_list(kernel, "grad_kernel"));
  EXPECT_FALSE(on_list(kernel, ""));
}

// A fused row that gives to naive what it does not take, and says nothing: what the lists are there to find.
struct PlantedOp {
  static constexpr const char* kName = "planted";
  using Problem = AddProblem;
  using Forward = AddForward;
  using Backward = NoBackward;
  static std::span<const Variant<PlantedOp>> rows() { return kRows; }
  static const Variant<PlantedOp> kRows[2];
};

Cost nothing(const AddProblem&, Pass) { return {}; }

const Variant<PlantedOp> PlantedOp::kRows[2] = {
    {"fused",
     DeviceType::cpu,
     nullptr,
     {},
     nullptr,
     nothing,
     [](RankContext& ctx, const AddForward& f) {
       f.p.cols % 4 == 0 ? add_cpu_fused_forward(ctx, f) : add_cpu_naive_forward(ctx, f);
     },
     nullptr,
     "add/cpu_fused.cpp"},
    {"fused",
     DeviceType::cuda,
     nullptr,
     {},
     nullptr,
     nothing,
     KILN_CUDA_FN([](RankContext& ctx, const AddForward& f) {
       f.p.cols % 4 == 0 ? add_cuda_fused_forward(ctx, f) : add_cuda_naive_forward(ctx, f);
     }),
     nullptr,
     "add_fused_kernel"},
};

std::vector<std::string> strangers_in_planted(Device device, int64_t cols) {
  RankContext ctx(on(device, "", ""));
  OpListing planted{PlantedOp::kName, "", {}};
  for (const auto& row : PlantedOp::kRows)
    planted.variants.push_back({row.name, row.device, true, {}, row.kernels});
  const KernelWatch watch(ctx, {planted});
  const Tensor a = ctx.zeros({5, cols}, DType::f32), b = ctx.zeros({5, cols}, DType::f32);
  const Tensor y = ctx.empty({5, cols}, DType::f32);
  const AddProblem p{5, cols, DType::f32};
  OpCall<PlantedOp>(ctx, p).run({p, a, b, y}, {{"y", y}});
  EXPECT_EQ(watch.seen().size(), 1u);
  return watch.strangers();
}

TEST(KernelNames, APlantedFallThroughIsFound) {
  EXPECT_TRUE(strangers_in_planted(Device::cpu(), 8).empty());
  ASSERT_EQ(strangers_in_planted(Device::cpu(), 7).size(), 1u);
  EXPECT_EQ(strangers_in_planted(Device::cpu(), 7)[0],
            "planted=fused forward started add/cpu_naive.cpp; its list: add/cpu_fused.cpp");
}

TEST(CudaKernelNames, APlantedFallThroughIsFound) {
  KILN_NEEDS_GPU();
  EXPECT_TRUE(strangers_in_planted(Device::cuda(), 8).empty());
  ASSERT_EQ(strangers_in_planted(Device::cuda(), 7).size(), 1u);
  EXPECT_NE(strangers_in_planted(Device::cuda(), 7)[0].find("started add_kernel<float>"), std::string::npos);
}

}  // namespace
}  // namespace kiln
