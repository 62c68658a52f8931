// The caller's side of CUDA: the GPU that is current in its thread, and what it calls a stream.
#pragma once

#include "device/backend.h"

namespace kiln::abi {

int current_gpu();  // of this thread; -1: there is none, or CUDA does not say
void restore_gpu(int index);

// While it lives, kiln may make another GPU current; then the caller's is current again.
class CallersGpu {
 public:
  CallersGpu() : index_(current_gpu()) {}
  ~CallersGpu() { restore_gpu(index_); }
  CallersGpu(const CallersGpu&) = delete;
  CallersGpu& operator=(const CallersGpu&) = delete;

 private:
  int index_;
};

// kiln never launches without a stream; a caller's NULL means CUDA's default one, which has a name too.
Stream callers_stream(void* stream);

}  // namespace kiln::abi
