// A region, recorded once: its function runs on meta, and the nodes that this leaves on a tape become a
// graph.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "autograd/region.h"
#include "compile/expand.h"

namespace kiln::compile {

struct TracedOutput {
  Shape shape;
  DType dtype = DType::f32;
};

struct TracedOp {
  std::string name;
  Cost forward, backward;  // as an op of its own
};

struct Traced {
  Graph graph;  // inputs: the region's tensors, its weights, then the tables
  std::vector<Table> tables;
  std::vector<TracedOutput> outputs;
  std::vector<TracedOp> ops;
  DType computes = DType::f32;
  int64_t rows = 0;
};

// Of a weight as it is used; one that is not gathered has the dtype it is kept in.
inline DType dtype_of_weight(const Param& p) { return p.value.defined() ? p.value.dtype() : p.kept; }

// Throws Error for a region that has an op without primitives, or that depends on more than its inputs.
Traced trace(const Region& region, const RegionInputs& in);

}  // namespace kiln::compile
