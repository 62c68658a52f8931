// The work of `kiln bench ddp`: the four forms of data parallel training side by side, each with what
// compute alone and the cost of its collectives predict.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perf/comm/bucket_size.h"
#include "perf/comm/overlap_replay.h"
#include "perf/timing/host_load.h"
#include "report/tables/study_page.h"
#include "studies/op/op.h"
#include "studies/ranks/overlap_charts.h"
#include "studies/ranks/rank_steps.h"

namespace kiln {

constexpr double kBestBucket = -1;  // the predicted best one

// `batch` is global, over all ranks.
struct BenchDdpRequest : RanksStudy {
  BenchDdpRequest() { batch = 4, warmups = 3, steps = 10; }
  std::vector<std::string> forms = {"naive", "flat", "overlap", "bucketed"};
  std::vector<double> buckets = {1, 10, 100, 1000};  // of 1e6 bytes, for `bucketed`; kBestBucket too
  DType wire = DType::f32;
  int ranks = 2;
  int rounds = 2;   // forms alternate, so that a machine that slows down slows all of them
  std::string out;  // where rows of `bench allreduce` may be, for a link that is not modelled
};

struct DdpRow : RowOutcome {
  std::string form;
  double bucket_mb = 0;  // of bucketed
  bool automatic = false;
  BucketOptions options;
  RanksTiming run;

  // Predicted, us.
  OverlapLedger predicted;
  double communication_alone = 0;
  std::size_t calls = 0;  // that carry gradients
};

struct BenchDdpReport {
  std::string device, device_name, isa;
  HostLoad load;  // while it was measured
  int threads = 1;
  BenchDdpRequest request;
  Timing compute;            // of a step without communication, the slowest rank
  ComputeTimeline timeline;  // of it: the last rank, moment by moment
  int64_t gradient_bytes = 0;
  SumCost cost;
  std::string cost_from;  // in words
  BestBucket best;
  std::vector<DdpRow> rows;
  bool stopped = false;

  CallSeconds call_seconds() const;
  double compute_us() const { return 1e6 * compute.p50; }
  // No form can be faster: compute, or the bytes alone on the link.
  double floor_us() const;
  const DdpRow* naive() const;
  const DdpRow* fastest_bucketed() const;            // as measured
  const DdpRow* fastest_bucketed_predicted() const;  // by replay
};

void check_bench_ddp(const BenchDdpRequest& request);
BenchDdpReport bench_ddp(const BenchDdpRequest& request,
                         const std::function<void(const std::string&)>& progress);

StudyPage ddp_page(const BenchDdpReport& report, bool wide = false);
std::vector<std::string> ddp_result_lines(const BenchDdpReport& report);
// naive next to the fastest of the others, or what there is; and the caption below the title.
std::vector<NamedLedger> ddp_pair(const BenchDdpReport& report);
std::string ddp_caption(const BenchDdpReport& report);

}  // namespace kiln
