// kiln doctor --collectives: the hello world of several ranks.
#pragma once

#include <cstdint>
#include <string>

namespace kiln {

// Throws Error where a collective gave a rank something wrong.
void run_doctor_collectives(const std::string& device, uint64_t seed, bool json);

}  // namespace kiln
