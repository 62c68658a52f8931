// A graph cut into kernels: as few as are legal. A kernel goes over the region's rows once, with everything
// of a row at hand, so that a reduction over a row and all that reads it stay together. Only a sum over all
// rows must be whole before anything reads it: there, and nowhere else, one kernel ends and another begins.
#pragma once

#include <string>
#include <vector>

#include "compile/cost.h"

namespace kiln::compile {

struct Kernel {
  bool rows = true;         // over the region's rows; else over the one row that all share
  std::vector<int> shared;  // one-row values made here before the rows, in order
  std::vector<int> values;  // values of each row made here, in order; column sums among them
  std::vector<int> loads;   // values read from memory: inputs, and what an earlier kernel stored
  std::vector<int> stores;  // values written to memory
  std::string why;          // why this is not one with the kernel before it; empty of the first
  double flops = 0, bytes = 0;
  std::vector<std::string> ops;  // that it holds parts of
};

struct Program {
  Graph graph;
  std::vector<Kernel> kernels;
  std::vector<int> between;  // values stored by one kernel for another, and no outputs
  int64_t rows = 0;

  double bytes() const;
  double flops() const;
  double bytes_apart() const;  // each value as a pass of its own
};

Program fuse(const Graph& g, int64_t rows);

// Throws Error unless every value is made once before it is read, and every output is stored once (for
// tests).
void check_program(const Program& p);

}  // namespace kiln::compile
