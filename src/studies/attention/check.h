// What variants of attention are checked against, cell by cell: the definition at the cell's own shape, for
// some of its queries.
#pragma once

#include <optional>
#include <string>

#include "studies/attention/cells.h"
#include "studies/variant_check.h"

namespace kiln {

// The definition's results are the same for all variants of a cell: they are made once.
class AttentionReferences {
 public:
  AttentionReferences(const Device& device, int threads, uint64_t seed);

  const SampledReference& of(const AttentionCell& cell);
  const std::string& baseline() const { return baseline_; }  // the variant that is the definition

 private:
  Device device_;
  int threads_;
  uint64_t seed_;
  std::string baseline_;
  std::string last_;  // one is kept: cells come one after the other
  std::optional<SampledReference> made_;
};

}  // namespace kiln
