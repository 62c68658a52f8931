// A kernel that begins while the one before it ends, so that its start costs no time (Start::early of
// device/cuda/launch.h). Since Hopper; before, kernels are started in turn and these do nothing.
#pragma once

namespace kiln {

// Said by the earlier kernel: the next may be given what multiprocessors have left. It promises nothing about
// what has been written.
__device__ inline void let_next_kernel_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Returns when the earlier kernel has ended and all it wrote can be read.
__device__ inline void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace kiln
