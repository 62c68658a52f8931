// A program in words: its graph, and which values each kernel makes, reads and writes.
#pragma once

#include <string>

#include "compile/plan.h"

namespace kiln::compile {

std::string graph_text(const Graph& g);
std::string kernel_text(const Program& p, const Kernel& k);
// What forward keeps, and what backward makes again of what it needs.
std::string kept_text(const Traced& t, const RegionPlan& plan);

}  // namespace kiln::compile
