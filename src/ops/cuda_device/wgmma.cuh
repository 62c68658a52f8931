// The tensor cores of Hopper, a warpgroup (four warps) at a time: wgmma, whose right operand, and left one if
// wanted, is read from shared memory by the tensor cores themselves. The 64 rows of the sums are 16 of each
// warp, held as mma.cuh describes.
//
// Operands lie in shared memory as the copy engine leaves them (tma.cuh): rows of 128 bytes, in which the
// eight pieces of 16 bytes change places with the row's number modulo eight (the 128-byte swizzle). Such a
// tile serves with its rows along the operand's own index, or, `across`, along the summed one.
// The products run behind the threads' backs: what they read and write may not be touched before
// wait_for_products.
#pragma once

#include "ops/cuda_device/mma.cuh"

// Code for Hopper alone: the kernels of other architectures are empty, and their ops say so before a launch.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KILN_HOPPER_CODE
#endif

namespace kiln {

// Neighbouring blocks of eight rows are 1024 bytes apart. `next_half`: the distance in bytes of the next 64
// columns, for an operand read across that has more than 64.
__device__ inline uint64_t operand_at(const void* shared, int next_half = 16) {
  return static_cast<uint64_t>((shared_address(shared) & 0x3ffff) >> 4) |
         static_cast<uint64_t>(next_half >> 4) << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}
// So many bytes further on: a multiple of 16.
__device__ constexpr uint64_t operand_step(int bytes) { return static_cast<uint64_t>(bytes >> 4); }

// Ordinary writes to shared memory, by this thread, become visible to the tensor cores after a barrier.
__device__ inline void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void close_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until at most kLeft of the closed groups are under way.
template <int kLeft = 0>
__device__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// To the compiler sums have their values as soon as a product is begun. This ties whatever reads them to what
// came before: call it after wait_for_products.
template <int kCount>
__device__ void settle(TileSums (&c)[kCount]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(c[n].at[e])::"memory");
  }
}

// The operands of the instruction: the sums, as text and as registers (`mode`: "=f" written, "+f" added to),
// then what stands behind them.
#define KILN_FOUR(mode, n) mode(c[n].at[0]), mode(c[n].at[1]), mode(c[n].at[2]), mode(c[n].at[3])
#define KILN_SUMS_2(mode) KILN_FOUR(mode, 0), KILN_FOUR(mode, 1)
#define KILN_SUMS_4(mode) KILN_SUMS_2(mode), KILN_FOUR(mode, 2), KILN_FOUR(mode, 3)
#define KILN_SUMS_8(mode) \
  KILN_SUMS_4(mode), KILN_FOUR(mode, 4), KILN_FOUR(mode, 5), KILN_FOUR(mode, 6), KILN_FOUR(mode, 7)
#define KILN_SUMS_10(mode) KILN_SUMS_8(mode), KILN_FOUR(mode, 8), KILN_FOUR(mode, 9)
#define KILN_SUMS_12(mode) KILN_SUMS_10(mode), KILN_FOUR(mode, 10), KILN_FOUR(mode, 11)
#define KILN_SUMS_16(mode) \
  KILN_SUMS_12(mode), KILN_FOUR(mode, 12), KILN_FOUR(mode, 13), KILN_FOUR(mode, 14), KILN_FOUR(mode, 15)
#define KILN_SUMS_20(mode) \
  KILN_SUMS_16(mode), KILN_FOUR(mode, 16), KILN_FOUR(mode, 17), KILN_FOUR(mode, 18), KILN_FOUR(mode, 19)
#define KILN_SUMS_22(mode) KILN_SUMS_20(mode), KILN_FOUR(mode, 20), KILN_FOUR(mode, 21)
#define KILN_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define KILN_NAMES_16 KILN_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define KILN_NAMES_32 \
  KILN_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KILN_NAMES_40 KILN_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define KILN_NAMES_48 KILN_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define KILN_NAMES_64 \
  KILN_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KILN_NAMES_80 \
  KILN_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define KILN_NAMES_88 KILN_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87"

#define KILN_WGMMA(type, tiles, mode, adds, columns, registers, behind, ...)                              \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " adds ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns \
               "k16.f32." type "." type " {" KILN_NAMES_##registers "}, " behind "\n}"                    \
               : KILN_SUMS_##tiles(mode)                                                                  \
               : __VA_ARGS__)
#define KILN_WGMMA_TYPED(...)              \
  if constexpr (std::is_same_v<T, bf16>) { \
    KILN_WGMMA("bf16", __VA_ARGS__);       \
  } else {                                 \
    KILN_WGMMA("f16", __VA_ARGS__);        \
  }

// `tiles` sums of eight columns side by side. p0 to p6 are the places of what stands behind the sums.
#define KILN_PRODUCTS(tiles, columns, registers, p0, p1, p2, p3, p4, p5, p6)                    \
  /* c = A B, both operands in shared memory */                                                 \
  template <class T, bool kAcrossA = false, bool kAcrossB = false>                              \
  __device__ void multiply(TileSums(&c)[tiles], uint64_t a, uint64_t b) {                       \
    KILN_WGMMA_TYPED(tiles, "=f", "0", columns, registers,                                      \
                     "%" #p0 ", %" #p1 ", p, 1, 1, %" #p2 ", %" #p3 ";", "l"(a), "l"(b),        \
                     "n"(kAcrossA ? 1 : 0), "n"(kAcrossB ? 1 : 0))                              \
  }                                                                                             \
  /* c += A B, likewise */                                                                      \
  template <class T, bool kAcrossA = false, bool kAcrossB = false>                              \
  __device__ void multiply_add(TileSums(&c)[tiles], uint64_t a, uint64_t b) {                   \
    KILN_WGMMA_TYPED(tiles, "+f", "1", columns, registers,                                      \
                     "%" #p0 ", %" #p1 ", p, 1, 1, %" #p2 ", %" #p3 ";", "l"(a), "l"(b),        \
                     "n"(kAcrossA ? 1 : 0), "n"(kAcrossB ? 1 : 0))                              \
  }                                                                                             \
  /* c += A B, the left operand in registers; c = A B where `adds` is zero */                   \
  template <class T, bool kAcrossB = false>                                                     \
  __device__ void multiply_add(TileSums(&c)[tiles], const TileA& a, uint64_t b, int adds = 1) { \
    KILN_WGMMA_TYPED(tiles, "+f", "%" #p6, columns, registers,                                  \
                     "{%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4 ", p, 1, 1, %" #p5 ";",  \
                     "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b),    \
                     "n"(kAcrossB ? 1 : 0), "r"(adds))                                          \
  }
KILN_PRODUCTS(2, "16", 8, 8, 9, 10, 11, 12, 13, 14)
KILN_PRODUCTS(8, "64", 32, 32, 33, 34, 35, 36, 37, 38)
KILN_PRODUCTS(10, "80", 40, 40, 41, 42, 43, 44, 45, 46)
KILN_PRODUCTS(12, "96", 48, 48, 49, 50, 51, 52, 53, 54)
KILN_PRODUCTS(16, "128", 64, 64, 65, 66, 67, 68, 69, 70)
KILN_PRODUCTS(20, "160", 80, 80, 81, 82, 83, 84, 85, 86)
KILN_PRODUCTS(22, "176", 88, 88, 89, 90, 91, 92, 93, 94)

#undef KILN_PRODUCTS
#undef KILN_WGMMA_TYPED
#undef KILN_WGMMA
#undef KILN_NAMES_88
#undef KILN_NAMES_80
#undef KILN_NAMES_64
#undef KILN_NAMES_48
#undef KILN_NAMES_40
#undef KILN_NAMES_32
#undef KILN_NAMES_16
#undef KILN_NAMES_8
#undef KILN_SUMS_22
#undef KILN_SUMS_20
#undef KILN_SUMS_16
#undef KILN_SUMS_12
#undef KILN_SUMS_10
#undef KILN_SUMS_8
#undef KILN_SUMS_4
#undef KILN_SUMS_2
#undef KILN_FOUR

// The c-th of a row of products that are summed: the first begins the sums. In an unrolled loop.
template <class T, bool kAcrossA = false, bool kAcrossB = false, int kTiles>
__device__ void add_product(int c, TileSums (&sums)[kTiles], uint64_t a, uint64_t b) {
  if (c == 0) {
    multiply<T, kAcrossA, kAcrossB>(sums, a, b);
  } else {
    multiply_add<T, kAcrossA, kAcrossB>(sums, a, b);
  }
}

}  // namespace kiln
