// How much shared memory a block may have, which decides what attention's kernels can run.
#pragma once

namespace kiln {

// In KiB, by NVIDIA's tables; of GPUs not known here the least.
constexpr int shared_kib(int compute_capability) {
  switch (compute_capability) {
    case 80:
    case 87:
      return 163;
    case 90:
    case 100:
    case 103:
      return 227;
    default:
      return 99;
  }
}

}  // namespace kiln
