// Programmatic dependent launch (PDL): a kernel launched with Pdl::on (device/cuda/launch.h) may start while
// the kernel before it on the stream still runs, which hides its launch. Hopper and later; on older GPUs
// kernels run one after the other and these two do nothing.
#pragma once

namespace kiln {

// In the earlier kernel: the dependent kernel may take the multiprocessors that are free. Says nothing about
// memory: what this kernel writes, before or after, is visible only behind pdl_wait().
__device__ inline void pdl_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// In the dependent kernel: returns when the earlier kernel has ended and all it wrote can be read.
__device__ inline void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace kiln
