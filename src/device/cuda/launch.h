// The one way to start a kernel. It takes a stream, so a launch without one cannot be written; it checks the
// launch and names the kernel when it fails; an empty grid is no work and is skipped.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "device/backend.h"

namespace kiln {

// In 64 bits until it has been checked. Rows go on x: y ends at 65535.
struct Grid {
  int64_t x, y;
  Grid(int64_t x, int64_t y = 1) : x(x), y(y) {}   // NOLINT(google-explicit-constructor)
  Grid(dim3 d) : x(d.x), y(int64_t{d.y} * d.z) {}  // NOLINT(google-explicit-constructor)
};

// Throws where the grid is larger than the hardware can count, or the stream is the default one. Tells the
// thread's KernelLog, where it has one, what is started.
dim3 checked_grid(const void* kernel, const Grid& grid, Stream stream);
[[noreturn]] void throw_launch_error(const void* kernel, const Grid& grid, dim3 block, std::size_t smem,
                                     cudaError_t error);

// More than this a kernel gets only after it was asked for.
inline constexpr std::size_t kSharedByDefault = 48 * 1024;
void allow_shared_memory(const void* kernel, std::size_t bytes);

// Programmatic dependent launch. on: the kernel may start before the one before it on the stream has ended.
// It must call pdl_wait (ops/cuda_device/pdl.cuh) in every thread before it touches what that one writes.
// Code older than Hopper's has no such wait, so where it is what runs, the launch is an ordinary one.
enum class Pdl { off, on };
bool pdl_available();  // on the current GPU

template <class... Parameters, class... Arguments>
void launch(Pdl pdl, void (*kernel)(Parameters...), const Grid& grid, dim3 block, std::size_t smem,
            Stream stream, Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0) return;
  if (smem > kSharedByDefault) allow_shared_memory(reinterpret_cast<const void*>(kernel), smem);
  cudaLaunchConfig_t config{};
  config.gridDim = checked_grid(reinterpret_cast<const void*>(kernel), grid, stream);
  config.blockDim = block;
  config.dynamicSmemBytes = smem;
  config.stream = static_cast<cudaStream_t>(stream.handle);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = pdl == Pdl::on && pdl_available() ? 1 : 0;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
  if (error != cudaSuccess) {
    throw_launch_error(reinterpret_cast<const void*>(kernel), grid, block, smem, error);
  }
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, dim3 block, std::size_t smem, Stream stream,
            Arguments&&... arguments) {
  launch(Pdl::off, kernel, grid, block, smem, stream, std::forward<Arguments>(arguments)...);
}

}  // namespace kiln
