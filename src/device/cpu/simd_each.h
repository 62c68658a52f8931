// Compiles one kernel file for every vector width. A .cpp includes all headers it needs, then
//
//   #define KILN_SIMD_FILE "ops/rms_norm/cpu_fused_simd.h"
//   #include "device/cpu/simd_each.h"
//
// and gets the file's functions in namespaces kiln::simd_plain, kiln::simd_avx2 and kiln::simd_avx512, each
// with its own `F32` vector (device/cpu/simd_vector.h). KILN_SIMD_PICK(isa, f) is the function of the rank's
// level.
//
// The target is switched by pragma after the headers, not by compiler flags: a std:: template that such a
// file shares with the rest of the program would otherwise be emitted once, with AVX-512 in it, and fault on
// older machines.
#include "device/cpu/intrinsics.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "device/cpu/isa.h"

#ifdef __clang__
#define KILN_SIMD_TARGET_AVX2 \
  _Pragma("clang attribute push(__attribute__((target(\"avx2,fma,f16c\"))), apply_to = function)")
// clang-format off: _Pragma takes one string, not several joined
#define KILN_SIMD_TARGET_AVX512 \
  _Pragma("clang attribute push(__attribute__((target(\"avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c\"))), apply_to = function)")
// clang-format on
#define KILN_SIMD_TARGET_END _Pragma("clang attribute pop")
#else
#define KILN_SIMD_TARGET_AVX2 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma,f16c\")")
#define KILN_SIMD_TARGET_AVX512 \
  _Pragma("GCC push_options") _Pragma("GCC target(\"avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c\")")
#define KILN_SIMD_TARGET_END _Pragma("GCC pop_options")
#endif

#define KILN_SIMD_LEVEL 0
namespace kiln::simd_plain {
#include "device/cpu/simd_vector.h"
#include KILN_SIMD_FILE
}  // namespace kiln::simd_plain
#undef KILN_SIMD_LEVEL

#define KILN_SIMD_LEVEL 1
KILN_SIMD_TARGET_AVX2
namespace kiln::simd_avx2 {
#include "device/cpu/simd_vector.h"
#include KILN_SIMD_FILE
}  // namespace kiln::simd_avx2
KILN_SIMD_TARGET_END
#undef KILN_SIMD_LEVEL

#define KILN_SIMD_LEVEL 2
KILN_SIMD_TARGET_AVX512
namespace kiln::simd_avx512 {
#include "device/cpu/simd_vector.h"
#include KILN_SIMD_FILE
}  // namespace kiln::simd_avx512
KILN_SIMD_TARGET_END
#undef KILN_SIMD_LEVEL

#undef KILN_SIMD_FILE

// The function's name may carry template arguments, hence the dots.
#define KILN_SIMD_PICK(isa, ...)                                      \
  ((isa) >= ::kiln::CpuIsa::avx512 ? ::kiln::simd_avx512::__VA_ARGS__ \
   : (isa) >= ::kiln::CpuIsa::avx2 ? ::kiln::simd_avx2::__VA_ARGS__   \
                                   : ::kiln::simd_plain::__VA_ARGS__)
