#include "perf/kernel_split.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"

namespace kiln {
namespace {

using Kind = KernelRecord::Kind;

KernelRecord kernel(const char* name, uint64_t start, uint64_t end) {
  return {Kind::kernel, name, start, end, 0};
}

TimedOp op(const char* name, const char* variant, Pass pass, Cost cost) {
  return {name, variant, pass, false, cost, 0};
}

// Names as nvcc and the libraries make them.
constexpr const char* kAdamW =
    "_ZN4kiln46_GLOBAL__N__7b232eeb_13_cuda_fused_cu_18ac69e312adamw_kernelILi4ENS_4bf16EffEEvNS_"
    "12AdamWProblemENS0_10AdamWRangeIT0_T1_T2_EEPKNS_11StepScalarsEPKNS_12DecaySegmentE";
constexpr const char* kFlash =
    "_ZN4kiln54_GLOBAL__N__812dd52f_21_cuda_flash_forward_cu_e8ea559e20flash_forward_kernelINS_"
    "4bf16ELi64ELi64EEEvNS_16AttentionProblemENS0_11ForwardRowsIT_EE";
constexpr const char* kMaskedSoftmax =
    "_ZN4kiln12softmax_rows14forward_kernelIfLi1ENS_20MaskedSoftmaxProblemEEEvT1_NS0_11ForwardRowsIT_EE";
constexpr const char* kSoftmax =
    "_ZN4kiln12softmax_rows14forward_kernelIfLi1ENS0_10AllColumnsEEEvT1_NS0_11ForwardRowsIT_EE";
constexpr const char* kSquares =
    "_ZN4kiln46_GLOBAL__N__2059b734_13_cuda_fused_cu_5d91b69320block_squares_kernelIfEEvPKT_llPd";
constexpr const char* kRowLoss =
    "_ZN4kiln46_GLOBAL__N__69e9066a_13_cuda_fused_cu_4f1a8f6615row_loss_kernelIfEEvNS_"
    "19CrossEntropyProblemENS_7RowViewIT_EEPKiPfS8_";
constexpr const char* kHeldRow =
    "_ZN4kiln46_GLOBAL__N__092b5486_13_cuda_fused_cu_95d477c015held_row_kernelIfLi4EEEvNS0_"
    "11LogitsChunkIT_EE";
constexpr const char* kNorm =
    "_ZN4kiln13rms_norm_rows14forward_kernelIfLi1ELb1EEEvNS_14RmsNormProblemENS0_11ForwardRowsIT_EE";
constexpr const char* kSwiglu =
    "_ZN4kiln46_GLOBAL__N__ab51e169_13_cuda_fused_cu_bc3521be14forward_kernelINS_4bf16EEEvNS_"
    "7RowViewIT_EES5_S5_ll";
constexpr const char* kWriteSums =
    "_ZN4kiln43_GLOBAL__N__15236b60_10_cuda_lt_cu_83736b7b17write_sums_kernelIfEEvPKNSt11conditionalIL_"
    "ZSt9is_same_vEdfE4typeElPT_lb";

TEST(KernelSplit, NamesHaveTheirParts) {
  struct Named {
    const char* name;
    KernelPart part;
  };
  for (const Named& n :
       {Named{kAdamW, KernelPart::update}, Named{kFlash, KernelPart::attention},
        Named{kMaskedSoftmax, KernelPart::attention}, Named{kSoftmax, KernelPart::pointwise},
        Named{kSquares, KernelPart::scalars}, Named{kRowLoss, KernelPart::loss},
        Named{kHeldRow, KernelPart::loss}, Named{kNorm, KernelPart::pointwise},
        Named{kSwiglu, KernelPart::pointwise}, Named{kWriteSums, KernelPart::gemm},
        Named{"nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN", KernelPart::gemm},
        Named{"sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8", KernelPart::gemm},
        Named{"_ZN7cutlass7Kernel2I61cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8EEv",
              KernelPart::gemm},
        Named{"_ZN8cublasLt19splitKreduce_kernelILi32EEEv", KernelPart::gemm},
        Named{"something_new", KernelPart::pointwise}})
    EXPECT_EQ(name_of(part_of(kernel(n.name, 0, 1))), name_of(n.part)) << n.name;
  EXPECT_EQ(part_of(KernelRecord{Kind::copy, "memcpy", 0, 1, 0}), KernelPart::copies);
  EXPECT_EQ(part_of(KernelRecord{Kind::fill, "memset", 0, 1, 0}), KernelPart::copies);
}

// A kernel that was renamed must not fall out of its part unseen.
TEST(KernelSplit, OurPatternsAreInOurSources) {
  const std::filesystem::path ops = std::filesystem::path(KILN_TESTS_FOLDER).parent_path() / "src" / "ops";
  std::string sources;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(ops)) {
    const std::string kind = entry.path().extension();
    if (kind != ".cu" && kind != ".cuh" && kind != ".h") continue;
    std::ifstream file(entry.path());
    sources.append(std::istreambuf_iterator<char>(file), {});
  }
  for (const KernelPattern& p : kernel_patterns()) {
    if (!p.ours) continue;
    const std::string_view text = p.text.substr(p.text.find_first_not_of("0123456789"));
    EXPECT_NE(sources.find(text), std::string::npos) << p.text;
  }
}

TEST(KernelSplit, ShortNamesSayWhichKernel) {
  EXPECT_EQ(short_kernel_name(kNorm), "rms_norm_rows::forward_kernel<float, 1, true>(RmsNormProblem)");
  EXPECT_EQ(short_kernel_name(kSwiglu), "forward_kernel<bf16>(RowView<bf16>)");
  EXPECT_EQ(short_kernel_name(kAdamW), "adamw_kernel<4, bf16, float, float>(AdamWProblem)");
  EXPECT_EQ(short_kernel_name(kSquares), "block_squares_kernel<float>(float const*)");
  EXPECT_EQ(short_kernel_name("memcpy"), "memcpy");
  EXPECT_EQ(short_kernel_name("_Znonsense17write_sums_kernelI?"), "write_sums_kernel");
  EXPECT_EQ(short_kernel_name(std::string(100, 'x')).size(), 72U);
}

TEST(KernelSplit, BusyIsTheUnion) {
  const std::vector<KernelRecord> records = {kernel("a", 10, 20), kernel("b", 15, 40), kernel("c", 18, 25),
                                             kernel("d", 40, 50), kernel("e", 70, 71)};
  EXPECT_EQ(busy_ns(records), 41U);      // 10 to 50, and one
  EXPECT_EQ(busy_ns(records, 30), 21U);  // what ran before does not count
  EXPECT_EQ(busy_ns(records, 100), 0U);
  EXPECT_EQ(busy_ns({}), 0U);
}

// Two steps of 10 ms, after one that is longer and only starts the clock.
TEST(KernelSplit, PartsOverlapAndGapsAddUpToTheStep) {
  std::vector<KernelRecord> records = {kernel("nvjet_a", 0, 90'000'000),
                                       kernel(kNorm, 90'000'000, 91'000'000),
                                       {Kind::copy, "memcpy", 99'000'000, 100'000'000, 0}};
  for (uint64_t t : {100'000'000, 110'000'000}) {
    records.push_back(kernel("nvjet_a", t + 1'000'000, t + 6'000'000));
    records.push_back(kernel(kNorm, t + 5'000'000, t + 8'000'000));  // a millisecond beside the product
    records.push_back({Kind::copy, "memcpy", t + 9'500'000, t + 10'000'000, 0});
  }
  std::swap(records[0], records[8]);  // any order will do
  const KernelSplit split = split_kernels(records, 2);
  EXPECT_DOUBLE_EQ(split.span_ms, 10);
  EXPECT_DOUBLE_EQ(split.sum_ms, 8.5);
  EXPECT_DOUBLE_EQ(split.busy_ms, 7.5);
  EXPECT_DOUBLE_EQ(split.gaps_ms(), 2.5);
  EXPECT_DOUBLE_EQ(split.overlap_ms(), 1);
  ASSERT_EQ(split.parts.size(), 3U);
  EXPECT_EQ(split.parts[0].what, KernelPart::gemm);
  EXPECT_DOUBLE_EQ(split.parts[0].ms, 5);
  EXPECT_EQ(split.parts[0].kernels, 1);
  EXPECT_EQ(split.parts[1].what, KernelPart::pointwise);
  EXPECT_EQ(split.parts[2].what, KernelPart::copies);
  double parts = 0;
  for (const PartTime& p : split.parts) parts += p.ms;
  EXPECT_NEAR(parts - split.overlap_ms() + split.gaps_ms(), split.span_ms, 1e-9);
  ASSERT_EQ(split.kernels.size(), 3U);
  EXPECT_EQ(split.kernels[0].name, "nvjet_a");
  EXPECT_EQ(split.kernels[1].name, kNorm);
  EXPECT_EQ(split.kernels[1].calls, 1);
  EXPECT_DOUBLE_EQ(split.kernels[1].ms, 3);
  EXPECT_THROW(split_kernels({kernel("a", 0, 1)}, 1), Error);
  EXPECT_THROW(split_kernels({}, 3), Error);
}

TEST(KernelSplit, FloorsCountWhereTheKernelsAre) {
  const Rates best{1e9, 1e6};  // a flop takes a nanosecond, a byte a microsecond
  const KernelSplit split =
      split_kernels({kernel("nvjet", 0, 1), kernel("nvjet", 10, 12'000'010)}, 1);  // 12 ms of products
  const std::vector<PartTime> parts = with_floors(
      split,
      {op("linear", "lt", Pass::forward, {4e6, 10}),
       op("linear_cross_entropy", "fused", Pass::forward, {2e6, 0}),
       op("linear_cross_entropy", "fused", Pass::backward, {0, 3000}),
       op("linear_cross_entropy", "composed", Pass::backward, {1e6, 0}),
       op("cross_entropy", "fused", Pass::forward, {0, 1000}), op("rope", "fused", Pass::forward, {0, 500}),
       op("attention", "flash", Pass::forward, {8e6, 0}), op("adamw", "fused", Pass::forward, {0, 100})},
      best);
  ASSERT_EQ(parts.size(), 5U);
  EXPECT_EQ(parts[0].what, KernelPart::gemm);
  EXPECT_DOUBLE_EQ(parts[0].ms, 12);
  EXPECT_DOUBLE_EQ(parts[0].floor_ms, 4 + 2 + 1);
  EXPECT_DOUBLE_EQ(parts[0].cost.flops, 7e6);
  EXPECT_EQ(parts[1].what, KernelPart::loss);
  EXPECT_DOUBLE_EQ(parts[1].floor_ms, 3 + 1);
  EXPECT_EQ(parts[1].kernels, 0);  // ops without kernels are shown too
  EXPECT_EQ(parts[2].what, KernelPart::attention);
  EXPECT_DOUBLE_EQ(parts[2].floor_ms, 8);
  EXPECT_EQ(parts[3].what, KernelPart::pointwise);
  EXPECT_EQ(parts[4].what, KernelPart::update);
}

}  // namespace
}  // namespace kiln
