// Whether a device can do what `--compile` asks for.
#pragma once

#include <string>

#include "device/device.h"
#include "model/config.h"

namespace kiln {

// Throws Error(unavailable) where it cannot, except for auto.
void check_compile(const ModelConfig& config, const Device& device);
// What auto came to, in a line; empty where it was not asked for, or compiles.
std::string compile_note(const ModelConfig& config, const Device& device);

}  // namespace kiln
