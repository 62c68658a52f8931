// Owners of CUDA's handles: each destroys what it holds, once. A failure to destroy is not an error anybody
// could act on, so it is dropped.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <utility>

namespace kiln {

template <class T, auto Destroy>
class CudaHandle {
 public:
  CudaHandle() = default;
  explicit CudaHandle(T handle) : handle_(handle) {}
  CudaHandle(CudaHandle&& o) noexcept : handle_(o.release()) {}
  CudaHandle& operator=(CudaHandle&& o) noexcept {
    std::swap(handle_, o.handle_);
    return *this;
  }
  ~CudaHandle() {
    if (handle_ != nullptr) (void)Destroy(handle_);
  }

  T get() const { return handle_; }
  T* out() { return &handle_; }  // for the call that creates it; only while empty
  T release() { return std::exchange(handle_, nullptr); }

 private:
  T handle_ = nullptr;
};

using CudaStream = CudaHandle<cudaStream_t, cudaStreamDestroy>;
using CudaEvent = CudaHandle<cudaEvent_t, cudaEventDestroy>;
using CudaGraph = CudaHandle<cudaGraph_t, cudaGraphDestroy>;
using CudaGraphExec = CudaHandle<cudaGraphExec_t, cudaGraphExecDestroy>;
using CublasLt = CudaHandle<cublasLtHandle_t, cublasLtDestroy>;
using LtProductDesc = CudaHandle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using LtLayout = CudaHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using LtPreference = CudaHandle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

}  // namespace kiln
