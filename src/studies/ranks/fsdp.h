// The work of `kiln bench fsdp`: sharded weights gathered k ahead, and whether they arrived in time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perf/timing/host_load.h"
#include "report/charts/svg_parts.h"
#include "report/tables/study_page.h"
#include "studies/ranks/rank_steps.h"

namespace kiln {

// `batch` is global, over all ranks.
// Instead of a depth: the one replay predicts from the uses of a first run (perf/comm/prefetch_depth.h).
inline constexpr int kAutoPrefetch = -1;

struct BenchFsdpRequest : RanksStudy {
  BenchFsdpRequest() { batch = 4, warmups = 3, steps = 7; }
  std::vector<int> prefetch = {0, 1, 2};
  int ranks = 2;
};

struct FsdpRow : RowOutcome {
  int prefetch = 0;
  bool automatic = false;  // the depth was chosen
  std::string why = {};    // then: why
  RanksTiming run;
  GatherReplay predicted;  // from the uses of the first run, on the link; empty where none is known
};

struct BenchFsdpReport {
  std::string device, device_name, isa;
  HostLoad load;  // while it was measured
  int threads = 1;
  BenchFsdpRequest request;
  Timing compute;  // of a step of the same ranks that share nothing
  std::vector<FsdpRow> rows;
  std::string link_from = {};  // of predictions where no link is modelled
  bool stopped = false;

  bool predicts() const { return request.link || !link_from.empty(); }
};

void check_bench_fsdp(const BenchFsdpRequest& request);
BenchFsdpReport bench_fsdp(const BenchFsdpRequest& request,
                           const std::function<void(const std::string&)>& progress);
StudyPage fsdp_page(const BenchFsdpReport& report, bool wide = false);
std::vector<std::string> fsdp_result_lines(const BenchFsdpReport& report);
std::vector<NamedChart> fsdp_charts(const BenchFsdpReport& report);  // overlap: the steps as lanes

}  // namespace kiln
