#include "device/cpu/cpu_features.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace kiln {
namespace {

constexpr bool bit(std::uint64_t word, int n) { return ((word >> n) & 1U) != 0; }

// XCR0: which register files the operating system saves on a task switch.
constexpr std::uint64_t kXcr0Avx = 0x6;      // SSE, upper halves of ymm
constexpr std::uint64_t kXcr0Avx512 = 0xe6;  // the above, opmask, zmm
constexpr std::uint64_t kXcr0Amx = 0x60000;  // tile config (17), tile data (18)
constexpr int kArchReqXcompPerm = 0x1023;    // ARCH_REQ_XCOMP_PERM of <asm/prctl.h>, newer than some headers
constexpr int kXfeatureTileData = 18;

#if defined(__x86_64__)
std::uint64_t read_xcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  // _xgetbv() would need this file compiled with -mxsave.
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

CpuidWords read_cpuid() {
  CpuidWords w;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return w;
  w.leaf1_ecx = ecx;
  constexpr int kOsxsave = 27;  // without it xgetbv is an illegal instruction
  if (bit(ecx, kOsxsave)) w.xcr0 = read_xcr0();
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    const unsigned last_subleaf = eax;
    w.leaf7_ebx = ebx;
    w.leaf7_ecx = ecx;
    w.leaf7_edx = edx;
    if (last_subleaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) w.leaf7_1_eax = eax;
  }
  constexpr int kAmxTile = 24;
  if (bit(w.leaf7_edx, kAmxTile)) {
    w.amx_permitted = syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
  }
  return w;
}
#else
CpuidWords read_cpuid() { return {}; }
#endif

}  // namespace

CpuFeatures decode_cpu_features(const CpuidWords& w) {
  CpuFeatures f;
  f.sse4_2 = bit(w.leaf1_ecx, 20);
  f.bmi2 = bit(w.leaf7_ebx, 8);

  const bool os_avx = (w.xcr0 & kXcr0Avx) == kXcr0Avx;
  f.avx = os_avx && bit(w.leaf1_ecx, 28);
  f.fma = f.avx && bit(w.leaf1_ecx, 12);
  f.f16c = f.avx && bit(w.leaf1_ecx, 29);
  f.avx2 = f.avx && bit(w.leaf7_ebx, 5);

  const bool os_avx512 = (w.xcr0 & kXcr0Avx512) == kXcr0Avx512;
  f.avx512f = os_avx512 && bit(w.leaf7_ebx, 16);
  f.avx512dq = f.avx512f && bit(w.leaf7_ebx, 17);
  f.avx512bw = f.avx512f && bit(w.leaf7_ebx, 30);
  f.avx512vl = f.avx512f && bit(w.leaf7_ebx, 31);
  f.avx512_vnni = f.avx512f && bit(w.leaf7_ecx, 11);
  f.avx512_fp16 = f.avx512f && bit(w.leaf7_edx, 23);
  f.avx512_bf16 = f.avx512f && bit(w.leaf7_1_eax, 5);

  // Never by leaf 0x1D (the tile palette): virtual machines may hide it while the tiles work.
  if (bit(w.leaf7_edx, 24)) {
    if ((w.xcr0 & kXcr0Amx) != kXcr0Amx) {
      f.amx_blocked = "the operating system does not save AMX tiles (XCR0 bits 17 and 18)";
    } else if (!w.amx_permitted) {
      f.amx_blocked = "the kernel refused AMX tiles to this process (ARCH_REQ_XCOMP_PERM)";
    } else {
      f.amx_tile = true;
      f.amx_bf16 = bit(w.leaf7_edx, 22);
      f.amx_int8 = bit(w.leaf7_edx, 25);
    }
  }
  return f;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures kFeatures = decode_cpu_features(read_cpuid());
  return kFeatures;
}

std::vector<std::pair<std::string_view, bool>> named_features(const CpuFeatures& f) {
  return {
      {"sse4_2", f.sse4_2},
      {"avx", f.avx},
      {"fma", f.fma},
      {"f16c", f.f16c},
      {"avx2", f.avx2},
      {"bmi2", f.bmi2},
      {"avx512f", f.avx512f},
      {"avx512dq", f.avx512dq},
      {"avx512bw", f.avx512bw},
      {"avx512vl", f.avx512vl},
      {"avx512_vnni", f.avx512_vnni},
      {"avx512_bf16", f.avx512_bf16},
      {"avx512_fp16", f.avx512_fp16},
      {"amx_tile", f.amx_tile},
      {"amx_bf16", f.amx_bf16},
      {"amx_int8", f.amx_int8},
  };
}

std::string cpu_model() {
#if defined(__x86_64__)
  std::array<unsigned, 12> words{};
  if (__get_cpuid_max(0x80000000U, nullptr) < 0x80000004U) return "unknown";
  for (unsigned i = 0; i < 3; ++i) {
    unsigned* w = &words[4 * std::size_t{i}];
    __get_cpuid(0x80000002U + i, &w[0], &w[1], &w[2], &w[3]);
  }
  std::array<char, sizeof(words) + 1> text{};
  std::memcpy(text.data(), words.data(), sizeof(words));
  std::string name(text.data());
  // Processors pad their names with blanks on either side.
  const auto first = name.find_first_not_of(' ');
  if (first == std::string::npos) return "unknown";
  return name.substr(first, name.find_last_not_of(' ') - first + 1);
#else
  return "unknown";
#endif
}

}  // namespace kiln
