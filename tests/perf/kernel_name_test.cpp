#include "perf/trace/kernel_name.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

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

TEST(KernelName, LibrariesAreToldFromOurs) {
  for (const char* ours :
       {kAdamW, kFlash, kMaskedSoftmax, kSoftmax, kSquares, kRowLoss, kHeldRow, kNorm, kSwiglu, kWriteSums})
    EXPECT_FALSE(of_a_library(ours)) << ours;
  for (const char* theirs :
       {"nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN", "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8",
        "_ZN7cutlass7Kernel2I61cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8EEv",
        "_ZN8cublasLt19splitKreduce_kernelILi32EEEv"})
    EXPECT_TRUE(of_a_library(theirs)) << theirs;
}

TEST(KernelName, ShortNamesSayWhichKernel) {
  EXPECT_EQ(short_kernel_name(kNorm), "rms_norm_rows::forward_kernel<float, 1, true>(RmsNormProblem)");
  EXPECT_EQ(short_kernel_name(kSwiglu), "forward_kernel<bf16>(RowView<bf16>)");
  EXPECT_EQ(short_kernel_name(kAdamW), "adamw_kernel<4, bf16, float, float>(AdamWProblem)");
  EXPECT_EQ(short_kernel_name(kSquares), "block_squares_kernel<float>(float const*)");
  EXPECT_EQ(short_kernel_name("memcpy"), "memcpy");
  EXPECT_EQ(short_kernel_name("_Znonsense17write_sums_kernelI?"), "write_sums_kernel");
  EXPECT_EQ(short_kernel_name(std::string(100, 'x')).size(), 72U);
}

}  // namespace
}  // namespace kiln
