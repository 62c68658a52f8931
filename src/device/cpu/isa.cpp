#include "device/cpu/isa.h"

#include <array>
#include <cstdlib>

#include "base/error.h"
#include "base/nearest_name.h"
#include "device/cpu/cpu_features.h"

namespace kiln {
namespace {

constexpr std::array<std::string_view, kCpuIsaCount> kNames = {"plain", "avx2", "avx512", "avx512_bf16",
                                                               "amx"};

}  // namespace

std::string_view name_of(CpuIsa isa) { return kNames[static_cast<int>(isa)]; }

CpuIsa best_cpu_isa() {
  const CpuFeatures& f = cpu_features();
  if (!(f.avx2 && f.fma && f.f16c)) return CpuIsa::plain;
  if (!(f.avx512f && f.avx512bw && f.avx512dq && f.avx512vl)) return CpuIsa::avx2;
  if (!f.avx512_bf16) return CpuIsa::avx512;
  return f.amx_tile && f.amx_bf16 ? CpuIsa::amx : CpuIsa::avx512_bf16;
}

CpuIsa checked_cpu_isa(CpuIsa wanted) {
  if (wanted <= best_cpu_isa()) return wanted;
  throw Error(cat("instruction set ", name_of(wanted), " was requested, this CPU goes up to ",
                  name_of(best_cpu_isa())),
              "choose a lower one", ErrorKind::unavailable);
}

CpuIsa cpu_isa_from_environment() {
  const CpuIsa best = best_cpu_isa();
  const char* text = std::getenv("KILN_CPU_ISA");
  if (text == nullptr || *text == '\0') return best;
  for (int i = 0; i < kCpuIsaCount; ++i) {
    if (kNames[i] != text) continue;
    if (static_cast<CpuIsa>(i) <= best) return static_cast<CpuIsa>(i);
    throw Error(cat("KILN_CPU_ISA is ", text, ", this CPU goes up to ", name_of(best)),
                "unset it, or choose a lower one", ErrorKind::unavailable);
  }
  const std::string near = nearest_name(text, kNames);
  throw Error(cat("KILN_CPU_ISA is '", text, "'"),
              cat(near.empty() ? "" : cat("did you mean '", near, "'? "),
                  "it takes plain, avx2, avx512, avx512_bf16 or amx"),
              ErrorKind::usage);
}

}  // namespace kiln
