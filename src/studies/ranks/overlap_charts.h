// Steps as two lanes each, compute above communication, all on one time axis: as an image, and as a timeline
// for the viewer and Perfetto.
#pragma once

#include <string>
#include <vector>

#include "perf/comm/overlap_ledger.h"
#include "report/export/timeline.h"

namespace kiln {

struct NamedLedger {
  std::string name;  // "ddp:naive"
  OverlapLedger ledger;
};

// `below` is under the title: size, ranks, link.
std::string overlap_svg(const std::vector<NamedLedger>& steps, const std::string& title,
                        const std::string& below);

Timeline overlap_timeline(const std::vector<NamedLedger>& steps, const std::string& title, int rank = 0);

}  // namespace kiln
