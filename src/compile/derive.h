// The gradient of a graph: the same graph, followed by values for the gradients of those inputs that want
// one.
#pragma once

#include <span>
#include <vector>

#include "compile/graph.h"

namespace kiln::compile {

struct Derived {
  Graph graph;      // forward's values first, with the same numbers
  int forward = 0;  // how many they are
  std::vector<int>
      upstream;            // for each output of forward: the input that brings its gradient; -1: not a number
  std::vector<int> grads;  // for each input of forward: its gradient; -1: not wanted, or there is none
};

// `wanted`: for each input. Inputs of integers and tables have no gradient; a comparison is a constant where
// it is used, and a rounding passes its gradient on.
Derived derive(const Graph& forward, std::span<const char> wanted, DType computes);

}  // namespace kiln::compile
