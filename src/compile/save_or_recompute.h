// What forward keeps for backward, and what backward makes again: the cheapest choice by a minimum cut.
//
// A forward value that backward needs is either kept, for the time that its bytes take through memory (an
// input or an output is there anyway and only read again; another value is written as well), or made again,
// for the time of its arithmetic; then its operands are needed in turn.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compile/cost.h"
#include "compile/derive.h"

namespace kiln::compile {

struct Kept {
  std::vector<int> values;  // of forward, in ascending order
  double seconds = 0;       // of the whole choice
  double bytes = 0;         // kept beyond inputs and outputs
};

// Seconds to keep each forward value (MaxFlow::kNever: it cannot be) and to make it again.
struct KeepCosts {
  std::vector<double> keep, remake;
};
KeepCosts keep_costs(const Derived& d, std::span<const int> outputs, int64_t rows, const Rates& rates);

// Forward values that the gradients read directly.
std::vector<int> read_by_backward(const Derived& d);

Kept choose_kept(const Derived& d, std::span<const int> needed, const KeepCosts& costs);

}  // namespace kiln::compile
