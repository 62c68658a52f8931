// Is a variant of attention right on a cell: what the definition gives there, on fewer and shorter sequences.
#pragma once

#include <map>
#include <string>

#include "studies/attention/cells.h"
#include "kiln/bench_check.h"

namespace kiln::cli {

// The definition's results are the same for all variants of a cell, and for all cells whose check is cut to
// the same sizes: they are made once.
class AttentionReferences {
 public:
  AttentionReferences(const Device& device, int threads, uint64_t seed);

  BenchOpRequest check_for(const AttentionCell& cell) const;
  // On sequences short enough for the definition, and long enough for the variant to run the same kernels.
  const Reference& of(const AttentionCell& cell, const std::string& variant);
  const std::string& baseline() const { return baseline_; }  // the variant that is the definition

 private:
  Device device_;
  int threads_;
  uint64_t seed_;
  std::string baseline_;
  std::map<std::string, Reference> made_;
};

// How long forward and backward of the definition would take on the whole cell, on the CPU, from what they
// took in the check.
double naive_seconds(const Reference& reference, const AttentionCell& cell);

}  // namespace kiln::cli
