#include "ops/gemm/gemm_kernel.h"

#define KILN_SIMD_FILE "ops/gemm/kernel_f32_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {

const GemmKernel& f32_gemm_kernel(CpuIsa isa) { return KILN_SIMD_PICK(isa, kernel)(); }

WriteGemmRow write_gemm_row(CpuIsa isa) { return KILN_SIMD_PICK(isa, write_row); }

}  // namespace kiln
