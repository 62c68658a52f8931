// How much of naive a check before a timing may take.
#pragma once

#include "device/device.h"
#include "ops/cases/sampled_case.h"

namespace kiln {

// For one op: all ops of a step together stay within ten seconds on a CPU, three beside a GPU.
inline Sampling gate_sampling(const Device& device, uint64_t seed) {
  return {.seed = seed, .work = device.type == DeviceType::cpu ? 2e7 : 1e7};
}

}  // namespace kiln
