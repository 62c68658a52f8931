// How an op's CUDA code reaches the GPU of its rank.
#pragma once

#include "autograd/rank_context.h"
#include "device/cuda/cuda_backend.h"

namespace kiln {

// The rank's backend, made current for this thread: the first thing a CUDA variant does.
inline CudaBackend& cuda_backend(RankContext& ctx) {
  auto& backend = static_cast<CudaBackend&>(ctx.backend());
  backend.activate();
  return backend;
}

// The stream ops run on, with its device made current.
inline Stream cuda_stream(RankContext& ctx) {
  cuda_backend(ctx);
  return ctx.compute();
}

}  // namespace kiln
