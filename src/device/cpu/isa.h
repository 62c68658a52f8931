// The instruction set the CPU's fast kernels use, chosen once per rank. Kernels for each are compiled into
// the same program; nothing above the chosen level is ever executed.
#pragma once

#include <cstdint>
#include <string_view>

namespace kiln {

enum class CpuIsa : uint8_t {
  plain,        // any x86-64
  avx2,         // AVX2 + FMA + F16C
  avx512,       // AVX-512 F, BW, DQ, VL
  avx512_bf16,  // and its bf16 dot product
  amx,          // and bf16 tiles
};
inline constexpr int kCpuIsaCount = 5;

std::string_view name_of(CpuIsa isa);
CpuIsa best_cpu_isa();

// KILN_CPU_ISA=plain|avx2|avx512|avx512_bf16|amx, else the best there is. Throws Error for a name it does not
// know (usage) and for one this CPU lacks (unavailable).
CpuIsa cpu_isa_from_environment();
CpuIsa checked_cpu_isa(CpuIsa wanted);  // throws likewise when this CPU lacks it

}  // namespace kiln
