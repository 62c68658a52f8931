// Models by the names of the registry, as an option lists them.
#pragma once

#include <string>
#include <vector>

#include "model/size_registry.h"

namespace kiln {

// Models by name, with another vocabulary where one is given.
std::vector<ModelSize> read_sizes(const std::string& names, const std::string& vocab);

}  // namespace kiln
