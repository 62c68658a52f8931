// The tensor cores of Hopper, a warpgroup (four warps) at a time: wgmma, whose right operand, and left one if
// wanted, is read from shared memory by the tensor cores themselves. The 64 rows of the sums are 16 of each
// warp, held as mma.cuh describes.
//
// Operands lie in shared memory without swizzling, in blocks of 8 rows by 16 bytes, each 128 bytes in a row.
// The same block serves as eight rows of eight neighbours along the summed index, or across it (`kAcross`,
// the transposed operand): only the meaning of the two strides changes. The products run behind the threads'
// backs: what they read and write may not be touched before finish_products.
#pragma once

#include "ops/cuda_device/mma.cuh"

namespace kiln {

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KILN_ON_HOPPER(...) __trap()
#else
#define KILN_ON_HOPPER(...) asm volatile(__VA_ARGS__)
#endif

// `lead` is the distance in bytes of neighbouring blocks along the summed index, `stride` across it.
__device__ inline uint64_t operand_at(const void* shared, int lead, int stride) {
  return static_cast<uint64_t>((shared_address(shared) & 0x3ffff) >> 4) |
         static_cast<uint64_t>(lead >> 4) << 16 | static_cast<uint64_t>(stride >> 4) << 32;
}

// Ordinary writes to shared memory, by this thread, become visible to the tensor cores after a barrier.
__device__ inline void show_to_products() { KILN_ON_HOPPER("fence.proxy.async.shared::cta;" :: : "memory"); }
__device__ inline void begin_products() { KILN_ON_HOPPER("wgmma.fence.sync.aligned;" :: : "memory"); }
__device__ inline void close_products() { KILN_ON_HOPPER("wgmma.commit_group.sync.aligned;" :: : "memory"); }
__device__ inline void wait_for_products() {
  KILN_ON_HOPPER("wgmma.wait_group.sync.aligned 0;" :: : "memory");
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

// The operands of the instruction: the sums, as text and as registers, then what stands behind them.
#define KILN_FOUR(n) "+f"(c[n].at[0]), "+f"(c[n].at[1]), "+f"(c[n].at[2]), "+f"(c[n].at[3])
#define KILN_SUMS_8                                                                                 \
  KILN_FOUR(0), KILN_FOUR(1), KILN_FOUR(2), KILN_FOUR(3), KILN_FOUR(4), KILN_FOUR(5), KILN_FOUR(6), \
      KILN_FOUR(7)
#define KILN_SUMS_10 KILN_SUMS_8, KILN_FOUR(8), KILN_FOUR(9)
#define KILN_SUMS_16 \
  KILN_SUMS_10, KILN_FOUR(10), KILN_FOUR(11), KILN_FOUR(12), KILN_FOUR(13), KILN_FOUR(14), KILN_FOUR(15)
#define KILN_NAMES_8                                                                            \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define KILN_NAMES_10                                                                           \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "  \
  "%38, %39}"
#define KILN_NAMES_16                                                                           \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "  \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "  \
  "%56, %57, %58, %59, %60, %61, %62, %63}"
#define KILN_WORDS "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b), "r"(adds ? 1 : 0)
#define KILN_ADDRESSES "l"(a), "l"(b), "r"(adds ? 1 : 0)

// c (+)= A B, `tiles` sums of eight columns side by side. Not `adds`: the sums begin here. `behind` is the
// text after the sums.
#define KILN_WGMMA(type, tiles, columns, predicate, behind, ...)                                             \
  KILN_ON_HOPPER("{\n.reg .pred p;\nsetp.ne.b32 p, " predicate                                               \
                 ", 0;\n"                                                                                    \
                 "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " " KILN_NAMES_##tiles \
                 ", " behind "\n}" : KILN_SUMS_##tiles : __VA_ARGS__)
#define KILN_MULTIPLY_ADD(Left, tiles, columns, predicate, behind, ...)                     \
  template <class T>                                                                        \
  __device__ void multiply_add(TileSums(&c)[tiles], Left a, uint64_t b, bool adds = true) { \
    if constexpr (std::is_same_v<T, bf16>) {                                                \
      KILN_WGMMA("bf16", tiles, columns, predicate, behind, __VA_ARGS__);                   \
    } else {                                                                                \
      KILN_WGMMA("f16", tiles, columns, predicate, behind, __VA_ARGS__);                    \
    }                                                                                       \
  }

// Both operands in shared memory; the right one's eight neighbours lie along the summed index.
KILN_MULTIPLY_ADD(uint64_t, 8, "64", "%34", "%32, %33, p, 1, 1, 0, 0;", KILN_ADDRESSES)
// The left operand in registers; the right one's eight neighbours lie across the summed index.
KILN_MULTIPLY_ADD(const TileA&, 8, "64", "%37", "{%32, %33, %34, %35}, %36, p, 1, 1, 1;", KILN_WORDS)
KILN_MULTIPLY_ADD(const TileA&, 10, "80", "%45", "{%40, %41, %42, %43}, %44, p, 1, 1, 1;", KILN_WORDS)
KILN_MULTIPLY_ADD(const TileA&, 16, "128", "%69", "{%64, %65, %66, %67}, %68, p, 1, 1, 1;", KILN_WORDS)

#undef KILN_MULTIPLY_ADD
#undef KILN_WGMMA
#undef KILN_ADDRESSES
#undef KILN_WORDS
#undef KILN_NAMES_16
#undef KILN_NAMES_10
#undef KILN_NAMES_8
#undef KILN_SUMS_16
#undef KILN_SUMS_10
#undef KILN_SUMS_8
#undef KILN_FOUR
#undef KILN_ON_HOPPER

}  // namespace kiln
