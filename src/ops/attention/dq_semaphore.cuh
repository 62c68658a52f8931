// The dQ semaphore: CTAs that add to the same tile of dq take turns, so that the fp32 sums are made in one
// order and dq has the same bits in every run. An integer in global memory counts the contributions a tile
// has; whoever is to make contribution n waits until it is n, adds, and sets it to n + 1. The order is
// backward_tile_scheduler.h's.
#pragma once

#include <cuda_runtime.h>

namespace kiln {

// What the CTA before wrote, before it released, is visible to this thread once it reads that value.
__device__ inline int semaphore_acquire(const int* flag) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__device__ inline void semaphore_wait(const int* flag, int value) {
  while (semaphore_acquire(flag) != value) __nanosleep(20);
}

// After a __threadfence(), which puts what this thread has written, or seen written by threads it met at a
// barrier, before the new value.
__device__ inline void semaphore_release(int* flag, int value) {
  asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

}  // namespace kiln
