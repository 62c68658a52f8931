// The work of `kiln bench fsdp`: sharded weights gathered k ahead, and whether they came in time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "studies/ranks/rank_steps.h"
#include "model/size_registry.h"
#include "report/tables/text_table.h"

namespace kiln::cli {

// `batch` is that of all ranks together.
struct BenchFsdpRequest : RanksStudy {
  BenchFsdpRequest() { batch = 4, warmups = 3, steps = 7; }
  std::vector<int> prefetch = {0, 1, 2};
  int ranks = 2;
};

struct FsdpRow {
  int prefetch = 0;
  RanksTiming run;
  GatherReplay predicted;  // from the uses of the first row, on the link; empty without one
  std::string wrong;       // why it does not count; empty: it does
};

struct BenchFsdpReport {
  std::string device, device_name, isa;
  int threads = 1;
  BenchFsdpRequest request;
  Timing compute;  // of a step of the same ranks that share nothing
  std::vector<FsdpRow> rows;
  bool stopped = false;
};

void check_bench_fsdp(const BenchFsdpRequest& request);
BenchFsdpReport bench_fsdp(const BenchFsdpRequest& request,
                           const std::function<void(const std::string&)>& progress);
std::string fsdp_caption(const BenchFsdpReport& report);
std::string fsdp_page(const BenchFsdpReport& report, PageFormat format);
std::vector<std::string> fsdp_result_lines(const BenchFsdpReport& report);

}  // namespace kiln::cli
