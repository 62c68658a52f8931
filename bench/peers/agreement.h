// Do the libraries compute the same matmul? Checked before any of them is timed: a fast wrong answer is no
// row.
#pragma once

#include <string>
#include <vector>

#include "peers.h"

namespace kiln {

// One library's C for a problem, as it left it: dense, of the problem's `out` dtype.
struct PeerResult {
  std::string name;
  const void* c;
};

// Empty where every result is right; else who is off, by how much, and how much is allowed. Some rows of C
// are compared with sums in double, which tells who is wrong; all of C is compared with the first result.
// Distances are relative to the norm; what is allowed depends on the dtype of C.
std::string disagreement(const PeerProblem& problem, const std::vector<PeerResult>& results);

}  // namespace kiln
