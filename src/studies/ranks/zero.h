// The work of `kiln bench zero`: what each stage of sharding saves in memory and costs in communication, as
// the paper has it, as meta predicts it, and as it is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dist/strategy/strategies.h"
#include "perf/comm/zero_theory.h"
#include "perf/timing/host_load.h"
#include "report/charts/svg_parts.h"
#include "report/tables/study_page.h"
#include "studies/op/op.h"
#include "studies/ranks/rank_steps.h"

namespace kiln {

// `batch` is that of each rank: activations are the same for any number of them.
struct BenchZeroRequest : RanksStudy {
  std::vector<std::string> stages = {"0", "1:simple", "1", "2"};  // 3 is FSDP
  std::vector<int> ranks = {1, 2, 4, 8};
  double bucket_mb = StrategyOptions().bucket_mb;
  bool measure = true;  // else meta alone
};

struct ZeroRow : RowOutcome {
  std::string stage;
  int ranks = 1;
  RanksTiming planned;  // on meta
  std::optional<RanksTiming> measured;
  std::string not_measured;  // why not
  double compute = 0;        // seconds of the step of so many ranks without communication
  ZeroTheory theory;

  // What lies there between two steps: weights, low halves, gradients, moments.
  static double state_of(const MemoryStats& m);
  double predicted_state() const { return state_of(planned.memory.after_step); }
  std::optional<double> state() const;
};

struct BenchZeroReport {
  std::string device, device_name, isa;
  HostLoad load;  // while it was measured
  int threads = 1;
  BenchZeroRequest request;
  int64_t parameters = 0;
  std::vector<ZeroRow> rows;
  bool stopped = false;

  const ZeroRow* unsharded(int ranks) const;  // stage 0 of so many ranks
  // Compute, and sums that overlap it; what follows the update is serial. Only where the link is modelled.
  std::optional<double> predicted_us(const ZeroRow& row) const;
  std::optional<double> floor_us(const ZeroRow& row) const;
};

std::string strategy_of_stage(std::string_view stage);
void check_bench_zero(const BenchZeroRequest& request);
BenchZeroReport bench_zero(const BenchZeroRequest& request,
                           const std::function<void(const std::string&)>& progress);

std::string zero_caption(const BenchZeroReport& report);  // what was trained, on what
StudyPage zero_page(const BenchZeroReport& report, bool wide = false);
std::vector<std::string> zero_result_lines(const BenchZeroReport& report);
// memory-over-ranks, memory-against-communication, and overlap: measured steps of the most ranks as lanes.
std::vector<NamedChart> zero_charts(const BenchZeroReport& report);

}  // namespace kiln
