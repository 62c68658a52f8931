// The caller's side of CUDA: the GPU that is current in its thread, and what it calls a stream.
#pragma once

#include "device/backend.h"

namespace kiln::abi {

// While it lives, kiln may make another GPU current; then the caller's is current again.
class CallersGpu {
 public:
  CallersGpu();
  ~CallersGpu();
  CallersGpu(const CallersGpu&) = delete;
  CallersGpu& operator=(const CallersGpu&) = delete;

 private:
  int index_ = -1;  // -1: none, or CUDA does not say
};

// kiln never launches without a stream; a caller's NULL means CUDA's default one, which has a name too.
Stream callers_stream(void* stream);

}  // namespace kiln::abi
