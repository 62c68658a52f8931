// Hopper's copy engine (TMA) and what goes with it: one thread names a box of a tensor, the engine moves it
// between global and shared memory and signals when it is there. Boxes are 64 columns of 16-bit values wide
// and swizzled as wgmma.cuh wants them; what lies outside the tensor is read as zeros and not written.
#pragma once

#include <cuda.h>

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
  // The address 16 c channels further on from one in the first 16. Pieces change places by exclusive or.
  __device__ static uint32_t further(uint32_t address, int c) {
    return (address ^ static_cast<uint32_t>(c % 4 * 32)) + static_cast<uint32_t>(c / 4 * kHalfBytes);
  }
  // As an operand from row r on, its rows along its own index; step(k) leads to the k-th 16 channels.
  __device__ uint64_t rows_from(int r) const { return operand_at(&half[0][r][0]); }
  __device__ static constexpr uint64_t step(int k) { return operand_step(k / 4 * kHalfBytes + k % 4 * 32); }
  // As an operand whose rows are summed over, from column half h on; across_step(k) leads to the k-th 16
  // rows.
  __device__ uint64_t columns_from(int h) const { return operand_at(&half[h][0][0], kHalfBytes); }
  __device__ static constexpr uint64_t across_step(int k) { return operand_step(k * 16 * 128); }
};

// An mbarrier: a phase ends when all expected arrivals have come and all announced bytes. Waiting for the
// phase before the first returns at once.
struct Signal {
  uint64_t word;

  __device__ uint32_t address() const { return shared_address(&word); }
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  __device__ void expect(int bytes) {  // and arrives
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes)
                 : "memory");
  }
  __device__ void wait(int phase) const {  // for the end of a phase of this parity
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra OVER;\nbra AGAIN;\nOVER:\n}" ::"r"(address()),
        "r"(phase)
        : "memory");
  }
};

// After the first thread's init() and before the block's first barrier.
__device__ inline void show_signals() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Rows `row`.. of one head, all its channels. The signal expects SwizzledTile::kBytes.
template <class Tile>
__device__ void fetch_tile(Tile& to, const CUtensorMap& map, int head, int row, int batch, Signal& signal) {
#pragma unroll
  for (int h = 0; h < Tile::kHalves; ++h) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(&to.half[h])),
        "l"(&map), "r"(h * 64), "r"(head), "r"(row), "r"(batch), "r"(signal.address())
        : "memory");
  }
}

// Contiguous bytes, a multiple of 16 and aligned so.
__device__ inline void fetch_bytes(void* to, const void* from, int bytes, Signal& signal) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(signal.address())
      : "memory");
}

// 64 rows from `first` of the tile on, by a map whose box has 64 rows; after show_to_products and a barrier.
// The tile may be used again, or left, after close_stores and wait_for_stores.
template <class Tile>
__device__ void store_rows(const CUtensorMap& map, Tile& from, int first, int head, int row, int batch) {
#pragma unroll
  for (int h = 0; h < Tile::kHalves; ++h) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&map),
        "r"(h * 64), "r"(head), "r"(row), "r"(batch), "r"(shared_address(&from.half[h][first][0]))
        : "memory");
  }
}
// Contiguous bytes, as fetch_bytes; stored, or added as floats to what is there.
__device__ inline void store_bytes(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void add_floats(void* to, const void* from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void close_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all but the last kLeft of the thread's closed stores have read what they write.
template <int kLeft = 0>
__device__ void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLeft) : "memory");
}
// What this thread knows to be in global memory, copies it begins from now on find there; and what its copies
// have written, others find.
__device__ inline void show_to_copies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// Until they are in global memory.
__device__ inline void wait_for_written_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  show_to_copies();
}

// A barrier of `threads` threads of the block, by its number (0 is __syncthreads').
__device__ inline void meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// A warpgroup's registers a thread, of the block's: whoever only starts copies leaves them to the others.
template <int kCount>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Whether `groups` warpgroups with `taken` registers a thread and one with `given` make do with what one of
// `blocks` blocks of a multiprocessor begins with; a warpgroup that asks for more waits for ever.
constexpr bool shares_registers(int groups, int taken, int given, int blocks = 1) {
  const int threads = 128 * (groups + 1), at_first = 65536 / blocks / threads / 8 * 8;
  return 128 * (groups * taken + given) <= at_first * threads;
}

}  // namespace kiln
