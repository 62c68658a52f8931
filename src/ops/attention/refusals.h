// Which problems a variant of attention does not take, on which device, and why: one reason in words, or
// empty where it takes them.
#pragma once

#include <string>

#include "ops/attention/attention.h"

namespace kiln {

// Of rows whose blocks know one length.
std::string needs_equal_lengths(const AttentionProblem& p, const DeviceTraits& traits);

std::string cpu_flash_unsupported(const AttentionProblem& p, const DeviceTraits& traits);
std::string cpu_small_m_unsupported(const AttentionProblem& p, const DeviceTraits& traits);
std::string cuda_flash_unsupported(const AttentionProblem& p, const DeviceTraits& traits);
std::string cuda_flash_fp32_unsupported(const AttentionProblem& p, const DeviceTraits& traits);
std::string cuda_flash_tf32_unsupported(const AttentionProblem& p, const DeviceTraits& traits);
std::string cuda_tiled_step_unsupported(const AttentionProblem& p, const DeviceTraits& traits);
std::string cuda_hopper_unsupported(const AttentionProblem& p, const DeviceTraits& traits);

}  // namespace kiln
