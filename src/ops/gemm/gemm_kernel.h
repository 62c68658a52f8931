// The GEMM microkernel, one per instruction set and input format: how a panel is packed
// and how two panels are multiplied. Everything around it (blocking, threads, edges) is in cpu_gemm.cpp.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "device/cpu/isa.h"

namespace kiln {

// `count` rows of A (or columns of B) by `depth` steps of K, read with any strides; one of the two is 1.
struct PanelSource {
  const void* data;
  DType dtype;
  int64_t stride;    // between rows (columns)
  int64_t k_stride;  // between steps of K
};

struct GemmKernel {
  const char* name;
  int64_t MR, NR;          // a tile of C
  int64_t KC;              // depth of a block: NR x KC of B stays in the first-level cache
  int64_t k_multiple;      // panels are padded with zeros to this depth
  int64_t element;         // bytes of a packed value
  bool adds_finished_sum;  // multiply(add) adds the whole sum to C; AMX continues the sum in C instead
  // Packs as many panels as `count` rows (columns) fill, `panel_bytes` apart; rows past `count` and steps
  // past `depth` become zero. Several at once, because a source whose rows are side by side is read a whole
  // line of memory at a time.
  void (*pack_a)(const PanelSource& src, int64_t count, int64_t depth, void* panels, int64_t panel_bytes);
  void (*pack_b)(const PanelSource& src, int64_t count, int64_t depth, void* panels, int64_t panel_bytes);
  // c[MR, NR] (=|+=) a b over `depth` (padded) steps. On the way it asks for a quarter of a panel of B, from
  // `ahead` on, to come into the second-level cache.
  void (*multiply)(int64_t depth, const void* a, const void* b, float* c, int64_t c_row, bool add,
                   const void* ahead);
  // Around all the multiplications of a task: AMX configures its tiles here. Null: nothing to do.
  void (*enter)();
  void (*leave)();
};

// c[0..n) (=|+=) alpha * sum: a finished row of sums into C's dtype.
using WriteGemmRow = void (*)(const float* sum, int64_t n, float alpha, DType out, void* c, bool accumulate);
WriteGemmRow write_gemm_row(CpuIsa isa);

// The best kernel for inputs of this dtype at this level; fp16 and, below avx512_bf16, bf16 are widened as
// they are packed.
const GemmKernel& gemm_kernel(DType in, CpuIsa isa);

const GemmKernel& f32_gemm_kernel(CpuIsa isa);
const GemmKernel& bf16_dot_gemm_kernel();  // avx512_bf16
const GemmKernel& bf16_amx_gemm_kernel();  // amx

}  // namespace kiln
