// The subjects of kiln calc that need no stored rows.
#pragma once

#include "kiln/command.h"

namespace kiln::cli {

void add_calc_theory(Command& calc, const CommonOptions& common);

}  // namespace kiln::cli
