// Hopper's TMA and what goes with it: one thread names a box of a tensor, TMA moves it between global and
// shared memory and completes an mbarrier when it is there. Boxes are 64 columns of 16-bit values wide and
// swizzled as wgmma.cuh wants them; what lies outside the tensor is read as zeros and not written.
#pragma once

#include <cuda.h>

#include <concepts>

#include "ops/cuda_device/wgmma.cuh"

namespace kiln {

// A tile of kRows rows of kWidth channels in shared memory, 64 channels at a time.
template <class T, int kWidth_, int kRows>
struct alignas(1024) SwizzledTile {
  static constexpr int kRowCount = kRows, kWidth = kWidth_;
  static constexpr int kHalves = (kWidth + 63) / 64, kHalfBytes = kRows * 128;
  static constexpr int kBytes = kHalves * kHalfBytes;
  T half[kHalves][kRows][64];

  __device__ T* at(int r, int c) { return &half[c / 64][r][((c / 8 % 8) ^ (r % 8)) * 8 + c % 8]; }
  __device__ const T* at(int r, int c) const { return &half[c / 64][r][((c / 8 % 8) ^ (r % 8)) * 8 + c % 8]; }
  // The address 16 c channels further on from one in the first 16. The swizzle is an exclusive or.
  __device__ static uint32_t advance(uint32_t address, int c) {
    return (address ^ static_cast<uint32_t>(c % 4 * 32)) + static_cast<uint32_t>(c / 4 * kHalfBytes);
  }
  // Descriptor of a K-major operand from row r on: channels are summed over. k_major_step(k) leads to the
  // k-th 16 channels.
  __device__ uint64_t k_major_from(int r) const { return smem_descriptor(&half[0][r][0]); }
  __device__ static constexpr uint64_t k_major_step(int k) {
    return descriptor_step(k / 4 * kHalfBytes + k % 4 * 32);
  }
  // Descriptor of an MN-major operand from column half h on: rows are summed over. mn_major_step(k) leads to
  // the k-th 16 rows.
  __device__ uint64_t mn_major_from(int h) const { return smem_descriptor(&half[h][0][0], kHalfBytes); }
  __device__ static constexpr uint64_t mn_major_step(int k) { return descriptor_step(k * 16 * 128); }
};

// A tile that TMA moves in boxes of 64 channels: a SwizzledTile.
template <class Tile>
concept TmaTile = requires(Tile& tile) {
  { Tile::kHalves } -> std::convertible_to<int>;
  { Tile::kBytes } -> std::convertible_to<int>;
  tile.half[0][0][0];
};

// A phase ends when all its arrivals and all announced bytes have come; the next then begins by itself. A
// wait names a phase by its parity and returns when that phase is over, so a thread must not fall two phases
// behind. Waiting for the phase before the first (parity 1 on a new barrier) returns at once: that is how a
// producer finds an empty stage the first time round.
struct Mbarrier {
  uint64_t word;

  __device__ uint32_t address() const { return shared_address(&word); }
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  __device__ void arrive_expect_tx(int bytes) {  // arrives, and announces what TMA will bring
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes)
                 : "memory");
  }
  __device__ void wait(int parity) const {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra OVER;\nbra AGAIN;\nOVER:\n}" ::"r"(address()),
        "r"(parity)
        : "memory");
  }
};

// Shows the barriers to the async proxy: after the first thread's init() and before the block's first
// barrier.
__device__ inline void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Rows `row`.. of one head, all its channels. The barrier expects SwizzledTile::kBytes.
template <TmaTile Tile>
__device__ void tma_load_tile(Tile& to, const CUtensorMap& map, int head, int row, int batch,
                              Mbarrier& barrier) {
#pragma unroll
  for (int h = 0; h < Tile::kHalves; ++h) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(&to.half[h])),
        "l"(&map), "r"(h * 64), "r"(head), "r"(row), "r"(batch), "r"(barrier.address())
        : "memory");
  }
}

// Contiguous bytes, a multiple of 16 and aligned so (a bulk copy, without a tensor map).
__device__ inline void tma_load_bytes(void* to, const void* from, int bytes, Mbarrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(barrier.address())
      : "memory");
}

// 64 rows from `first` of the tile on, by a map whose box has 64 rows; after fence_proxy_async and a barrier.
// The tile may be written again, or the block end, after tma_store_commit and tma_store_wait_read.
template <TmaTile Tile>
__device__ void tma_store_rows(const CUtensorMap& map, Tile& from, int first, int head, int row, int batch) {
#pragma unroll
  for (int h = 0; h < Tile::kHalves; ++h) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&map),
        "r"(h * 64), "r"(head), "r"(row), "r"(batch), "r"(shared_address(&from.half[h][first][0]))
        : "memory");
  }
}
// Contiguous bytes, as tma_load_bytes; stored, or added as floats to what is there, in L2.
__device__ inline void tma_store_bytes(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void tma_reduce_add_f32(void* to, const void* from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all but the last kPending of the thread's committed stores have read their source, whose memory is
// then free. What they wrote need not be visible yet.
template <int kPending = 0>
__device__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
// Between this thread's ordinary accesses to global memory (the generic proxy) and its bulk copies (the async
// proxy), both ways: copies issued from now on see what this thread has seen, and what its completed copies
// wrote is ordered before its next ordinary store.
__device__ inline void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// Until all of the thread's committed stores are in global memory.
__device__ inline void tma_store_wait_complete() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  fence_proxy_async_global();
}

// bar.sync for `threads` threads of the block; number 0 is __syncthreads'.
__device__ inline void named_barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// Sets a warpgroup's registers a thread: the producer gives registers up, the consumers take them.
template <int kCount>
__device__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Whether `consumers` warpgroups with `taken` registers a thread and a producer with `kept` fit in what a
// block starts with, of which a multiprocessor holds `blocks`; a warpgroup that asks for more waits for ever.
constexpr bool register_split_fits(int consumers, int taken, int kept, int blocks = 1) {
  const int threads = 128 * (consumers + 1), at_first = 65536 / blocks / threads / 8 * 8;
  return 128 * (consumers * taken + kept) <= at_first * threads;
}

}  // namespace kiln
