// Ceilings that the processes of one command share: a sweep starts a process for each cell, and its rows are
// compared with one another, so they have one ceiling, measured by the first cell that needs it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autograd/rank_context.h"
#include "studies/ceilings.h"

namespace kiln {

// The file that the processes share, in their environment.
inline constexpr const char* kCeilingsVariable = "KILN_CEILINGS";

// While it lives, processes that are started share their ceilings.
class SharedCeilings {
 public:
  SharedCeilings();
  ~SharedCeilings();
  SharedCeilings(const SharedCeilings&) = delete;
  SharedCeilings& operator=(const SharedCeilings&) = delete;

 private:
  std::string path_;  // empty where another command of ours has one already
};

// Of this device, ISA and number of threads, for these dtypes; nothing where nobody has measured them, or
// nobody shares them.
std::optional<Ceilings> shared_ceilings(RankContext& ctx, const std::vector<DType>& dtypes);
void share_ceilings(RankContext& ctx, const std::vector<DType>& dtypes, const Ceilings& ceilings);

}  // namespace kiln
