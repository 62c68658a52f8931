#include "abi/callers_gpu.h"

namespace kiln::abi {

int current_gpu() { return -1; }
void restore_gpu(int /*index*/) {}

Stream callers_stream(void* stream) { return {stream}; }

}  // namespace kiln::abi
