// kiln doctor --collectives: the hello world of several ranks.
#pragma once

#include "kiln/cmd.h"

namespace kiln::cli {

// Throws Error where a collective gave a rank something wrong.
void run_doctor_collectives(const CommonOptions& common);

}  // namespace kiln::cli
