// The tensor cores, a warp at a time (mma.sync, since Ampere): a 16 x 16 tile of A times a 16 x 8 tile of B,
// added to 16 x 8 sums in fp32. Who holds what:
//
//   A: four words of two neighbours in k: rows g and g + 8 of the first eight k, then of the last eight
//   B: two words of two neighbours in k: column g, the first eight k, then the last
//   sums: columns 2 q and 2 q + 1 of row g, then of row g + 8            g = lane / 4, q = lane % 4
//
// so the sums of two such tiles side by side, rounded to 16 bits, are the A of a next matmul with no word
// changing its thread.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "base/half.h"

namespace kiln {

struct FragA {
  uint32_t word[4];
};
struct FragB {
  uint32_t word[2];
};
struct FragAcc {
  float at[4] = {0, 0, 0, 0};
};

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Four 8 x 8 tiles of 16-bit values; lane l gives the address of row l % 8 of tile l / 8.
__device__ inline void ldmatrix_x4(uint32_t (&word)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ inline void ldmatrix_x4_trans(uint32_t (&word)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(shared_address(row))
               : "memory");
}

// Two of them; lanes 0 to 15 give the addresses.
__device__ inline void ldmatrix_x2_trans(uint32_t& first, uint32_t& second, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(first), "=r"(second)
               : "r"(shared_address(row))
               : "memory");
}

// The other way, since Hopper: an A, 16 x 16, to rows of shared memory. Lane l gives the address of row
// l / 8 % 2 * 8 + l % 8, of the first eight columns or, from lane 16 on, the last.
__device__ inline void stmatrix_x4(uint32_t row, const FragA& a) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(a.word[0]),
               "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3])
               : "memory");
}

// Older GPUs compile the kernels and never run them: their ops say so before a launch.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define KILN_SINCE_AMPERE(...) __trap()
#else
#define KILN_SINCE_AMPERE(...) asm volatile(__VA_ARGS__)
#endif

#define KILN_MMA(type)                                                                            \
  KILN_SINCE_AMPERE("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                        \
                    ".f32 {%0, %1, %2, %3}, "                                                     \
                    "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(c.at[0]),              \
                    "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3]) : "r"(a.word[0]), "r"(a.word[1]), \
                    "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]))

template <class T>
__device__ void mma_m16n8k16(FragAcc& c, const FragA& a, const FragB& b) {
  if constexpr (std::is_same_v<T, bf16>) {
    KILN_MMA("bf16");
  } else {
    KILN_MMA("f16");
  }
}
#undef KILN_MMA

// fp32 rounded to the 11 bits that TF32 keeps.
__device__ inline uint32_t as_tf32(float x) {
  uint32_t word = 0;
  KILN_SINCE_AMPERE("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(x));
  return word;
}

// TF32: a 16 x 8 tile of A times an 8 x 8 tile of B, four k of each first: A has rows g and g + 8 of k q,
// then of k q + 4; B column g of k q, then of k q + 4. The sums lie as above.
__device__ inline void mma_m16n8k8_tf32(float& c0, float& c1, float& c2, float& c3, const FragA& a,
                                        const FragB& b) {
  KILN_SINCE_AMPERE(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(c0),
      "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]),
      "r"(b.word[0]), "r"(b.word[1]));
}

// Sixteen bytes from global to shared memory, asynchronously; zeros where `valid` is false. Both addresses
// are multiples of 16.
__device__ inline void cp_async(void* shared, const void* global, bool valid) {
  KILN_SINCE_AMPERE("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                    "l"(global), "r"(valid ? 16 : 0) : "memory");
}

__device__ inline void cp_async_commit() { KILN_SINCE_AMPERE("cp.async.commit_group;" :: : "memory"); }

// Until at most kPending of the committed groups are under way.
template <int kPending>
__device__ void cp_async_wait() {
  KILN_SINCE_AMPERE("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ inline float exp2_fast(float x) {  // 2^-Inf = 0
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#undef KILN_SINCE_AMPERE

}  // namespace kiln
