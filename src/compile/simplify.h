// Leaves out of a graph what no output needs, and finds what is one value twice or a number.
#pragma once

#include <span>
#include <vector>

#include "compile/graph.h"

namespace kiln::compile {

// The values that `outputs` need, in their old order. Inputs stay, needed or not: they are the region's.
struct Pruned {
  Graph graph;
  std::vector<int> moved;  // old value -> new; -1: dropped
};
Pruned prune(const Graph& g, std::span<const int> outputs, DType computes);

// Whether no value is there twice and none goes unused: what prune() leaves (for tests).
bool is_minimal(const Graph& g);

}  // namespace kiln::compile
