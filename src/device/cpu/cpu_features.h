// Which instruction sets may be used here. Kernels are compiled per ISA and chosen at run time by these
// flags; a flag is set only when the processor has the instructions AND the operating system saves their
// registers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln {

struct CpuFeatures {
  bool sse4_2 = false;
  bool avx = false;
  bool fma = false;
  bool f16c = false;
  bool avx2 = false;
  bool bmi2 = false;
  bool avx512f = false;
  bool avx512dq = false;
  bool avx512bw = false;
  bool avx512vl = false;
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool amx_tile = false;
  bool amx_bf16 = false;
  bool amx_int8 = false;

  // Why AMX cannot be used though the processor has it; empty when it can be used or is not there at all.
  std::string_view amx_blocked;
};

// The words that decide, as the processor reports them. Apart from the reading, so that machines we do not
// have can be tested.
struct CpuidWords {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint64_t xcr0 = 0;
  bool amx_permitted = false;  // the kernel granted tile data to this process
};

CpuFeatures decode_cpu_features(const CpuidWords& words);

// Of this machine; read once. Asks the kernel for permission to use AMX tiles, which a process must do before
// its first tile instruction.
const CpuFeatures& cpu_features();

// Every feature with its name, for printing.
std::vector<std::pair<std::string_view, bool>> named_features(const CpuFeatures& features);

// The processor's own name for itself ("unknown" where it has none).
std::string cpu_model();

}  // namespace kiln
