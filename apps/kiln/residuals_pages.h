// What `kiln residuals` says: text for people, one JSON document for programs (docs/memory.md lists its
// keys).
#pragma once

#include <string>

#include "studies/residuals/residuals.h"

namespace kiln::cli {

std::string residuals_op_text(const ResidualsOpReport& report);
std::string residuals_op_json(const ResidualsOpReport& report);
std::string residuals_block_text(const ResidualsBlockReport& report);
std::string residuals_block_json(const ResidualsBlockReport& report);

}  // namespace kiln::cli
