#include "abi/callers_gpu.h"

namespace kiln::abi {

CallersGpu::CallersGpu() = default;
CallersGpu::~CallersGpu() = default;

Stream callers_stream(void* stream) { return {stream}; }

}  // namespace kiln::abi
