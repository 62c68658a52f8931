// Steps as two lanes each, compute above communication, all on one time axis: as an image, and as a trace
// that Perfetto opens.
#pragma once

#include <string>
#include <vector>

#include "perf/comm/overlap_ledger.h"

namespace kiln {

struct NamedLedger {
  std::string name;  // "ddp:naive"
  OverlapLedger ledger;
};

// `below` is under the title: size, ranks, link.
std::string overlap_svg(const std::vector<NamedLedger>& steps, const std::string& title,
                        const std::string& below);

std::string overlap_trace(const std::vector<NamedLedger>& steps, const std::string& title, int rank = 0);

}  // namespace kiln
