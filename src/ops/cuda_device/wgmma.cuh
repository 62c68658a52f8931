// The tensor cores of Hopper, a warpgroup (four warps) at a time: wgmma, whose right operand, and left one if
// wanted, is read from shared memory by the tensor cores themselves. The 64 rows of the sums are 16 of each
// warp, held as mma.cuh describes.
//
// Operands lie in shared memory as TMA leaves them (tma.cuh): rows of 128 bytes, in which the eight pieces of
// 16 bytes change places with the row's number modulo eight (the 128-byte swizzle). Such a tile serves
// K-major, its rows along the operand's own index (M or N), or MN-major (transposed), its rows along the
// summed index K.
//
// wgmma is asynchronous. The order of a group: wgmma_fence, the wgmmas, wgmma_commit, wgmma_wait,
// fence_operands. Until the wait nobody may touch the accumulators, the registers of a left operand, or the
// operands in shared memory.
#pragma once

#include "ops/cuda_device/mma.cuh"

// Code for Hopper alone: the kernels of other architectures are empty, and their ops say so before a launch.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KILN_HOPPER_CODE
#endif

namespace kiln {

// The matrix descriptor. Neighbouring groups of eight rows are 1024 bytes apart. `next_half`: the distance in
// bytes of the next 64 columns, for an MN-major operand that has more than 64.
__device__ inline uint64_t smem_descriptor(const void* shared, int next_half = 16) {
  return static_cast<uint64_t>((shared_address(shared) & 0x3ffff) >> 4) |
         static_cast<uint64_t>(next_half >> 4) << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}
// What to add to a descriptor to move it on by so many bytes, a multiple of 16.
__device__ constexpr uint64_t descriptor_step(int bytes) { return static_cast<uint64_t>(bytes >> 4); }

// Orders this thread's ordinary writes to shared memory (the generic proxy) before what wgmma and TMA read
// there (the async proxy). The writer fences, then a barrier tells whoever starts the reader.
__device__ inline void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Before the first wgmma that touches registers which ordinary code has written: accumulators or a left
// operand.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until at most kPending of the committed groups are under way; they end in the order of their commits.
template <int kPending = 0>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// To the compiler accumulators have their values as soon as a wgmma is issued, so it may move reads of them
// above the wait. This ties every later use to what came before: call it after wgmma_wait.
template <int kCount>
__device__ void fence_operands(FragAcc (&c)[kCount]) {
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
#define KILN_WGMMA_WIDTH(tiles, columns, registers, p0, p1, p2, p3, p4, p5, p6)                \
  /* c = A B, both operands in shared memory */                                                \
  template <class T, bool kTransA = false, bool kTransB = false>                               \
  __device__ void wgmma_ss_assign(FragAcc(&c)[tiles], uint64_t a, uint64_t b) {                \
    KILN_WGMMA_TYPED(tiles, "=f", "0", columns, registers,                                     \
                     "%" #p0 ", %" #p1 ", p, 1, 1, %" #p2 ", %" #p3 ";", "l"(a), "l"(b),       \
                     "n"(kTransA ? 1 : 0), "n"(kTransB ? 1 : 0))                               \
  }                                                                                            \
  /* c += A B, likewise */                                                                     \
  template <class T, bool kTransA = false, bool kTransB = false>                               \
  __device__ void wgmma_ss_add(FragAcc(&c)[tiles], uint64_t a, uint64_t b) {                   \
    KILN_WGMMA_TYPED(tiles, "+f", "1", columns, registers,                                     \
                     "%" #p0 ", %" #p1 ", p, 1, 1, %" #p2 ", %" #p3 ";", "l"(a), "l"(b),       \
                     "n"(kTransA ? 1 : 0), "n"(kTransB ? 1 : 0))                               \
  }                                                                                            \
  /* c += A B, the left operand in registers; c = A B where `adds` is zero */                  \
  template <class T, bool kTransB = false>                                                     \
  __device__ void wgmma_rs(FragAcc(&c)[tiles], const FragA& a, uint64_t b, int adds = 1) {     \
    KILN_WGMMA_TYPED(tiles, "+f", "%" #p6, columns, registers,                                 \
                     "{%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4 ", p, 1, 1, %" #p5 ";", \
                     "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b),   \
                     "n"(kTransB ? 1 : 0), "r"(adds))                                          \
  }
KILN_WGMMA_WIDTH(2, "16", 8, 8, 9, 10, 11, 12, 13, 14)
KILN_WGMMA_WIDTH(8, "64", 32, 32, 33, 34, 35, 36, 37, 38)
KILN_WGMMA_WIDTH(10, "80", 40, 40, 41, 42, 43, 44, 45, 46)
KILN_WGMMA_WIDTH(12, "96", 48, 48, 49, 50, 51, 52, 53, 54)
KILN_WGMMA_WIDTH(16, "128", 64, 64, 65, 66, 67, 68, 69, 70)
KILN_WGMMA_WIDTH(20, "160", 80, 80, 81, 82, 83, 84, 85, 86)
KILN_WGMMA_WIDTH(22, "176", 88, 88, 89, 90, 91, 92, 93, 94)

#undef KILN_WGMMA_WIDTH
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

// Step k of a sum over K, 16 at a time, in an unrolled loop: the first assigns, the others add.
template <class T, bool kTransA = false, bool kTransB = false, int kTiles>
__device__ void wgmma_ss(int k, FragAcc (&sums)[kTiles], uint64_t a, uint64_t b) {
  if (k == 0) {
    wgmma_ss_assign<T, kTransA, kTransB>(sums, a, b);
  } else {
    wgmma_ss_add<T, kTransA, kTransB>(sums, a, b);
  }
}

}  // namespace kiln
