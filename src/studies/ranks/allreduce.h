// The work of `kiln bench allreduce`: the time of all-reduces by size, ranks and transport,
// and the latency and bandwidth fitted to it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "dist/launch/ranks.h"
#include "perf/comm/all_reduce_timing.h"
#include "perf/comm/link_fit.h"
#include "perf/timing/host_load.h"
#include "report/tables/study_page.h"
#include "rows/row_status.h"

namespace kiln {

struct BenchAllReduceRequest {
  std::vector<Bytes> sizes = {{1'000'000}, {10'000'000}, {100'000'000}, {1'000'000'000}};
  std::vector<int> ranks = {2, 4, 6};
  std::vector<std::string> transports = {"threads", "mpi"};  // nccl too
  std::vector<std::string> algorithms = {"direct"};          // ring, alternate too
  std::vector<DType> dtypes = {DType::f32};
  Device device;
  int warmups = 5, samples = 30;
  double timeout = 60;
  uint64_t seed = 0;
  bool oversubscribe = false;            // more than kMostRanksPerCore ranks to a core are meant
  std::string reduction = "auto";        // deterministic, library; auto: as the transport's row says
  std::function<bool()> stop = nullptr;  // asked between groups of cells
};

// What the rows of one group have in common: all but size and dtype.
struct AllReduceGroup {
  std::string transport, algorithm;
  int ranks = 1;
  ReductionOrder reduction = ReductionOrder::deterministic;
};

struct AllReduceRow : RowOutcome {
  AllReduceGroup group;
  Bytes size;
  DType dtype = DType::f32;
  AllReduceTiming run = {};         // of one that passed
  std::optional<LinkFit> fit = {};  // of its group, where there is one
  double roofline = 0;              // seconds: every rank reads and writes the whole tensor at least once
  bool in_cache = false;            // all ranks' tensors fit into the last cache

  bool passed() const { return ok() && gate == Gate::passed; }
  double bytes() const { return static_cast<double>(size.value); }
  double algorithm_rate() const { return bytes() / run.timing.p50; }
  double bus_rate() const { return algorithm_rate() * 2 * (group.ranks - 1) / group.ranks; }
  std::string size_name() const;  // "10 MB"
  std::string why_not() const;    // of one that did not pass, with its name
};

// What was measured between the ranks of one transport, number and algorithm.
struct AllReduceFit {
  AllReduceGroup group;
  DType dtype = DType::f32;
  LinkFit fit;
};

struct BenchAllReduceReport {
  std::string device, device_name, isa;
  HostLoad load;  // while it was measured
  int threads = 1;
  double copy = 0;  // bytes/s, read and written, of all threads
  std::vector<AllReduceRow> rows;
  std::vector<AllReduceFit> fits;
  bool stopped = false;
  std::string hint;  // of the last error that kept rows from being timed, and its kind
  ErrorKind kind = ErrorKind::failed;

  bool any_timed() const;
};

// Ranks that are processes are started by this one, as `kiln run` does it; where this process is itself a
// rank, it measures with the others that were started, whatever the request says of ranks and transport.
BenchAllReduceReport bench_allreduce(const BenchAllReduceRequest& request,
                                     const std::function<void(const std::string&)>& progress);

// Of every group with two sizes or more that were timed; its rows get it too.
std::vector<AllReduceFit> fit_rows(std::vector<AllReduceRow>& rows);

StudyPage allreduce_page(const BenchAllReduceReport& report, bool wide = false);
std::vector<std::string> allreduce_result_lines(const BenchAllReduceReport& report);
void write_allreduce_charts(const std::string& out, const BenchAllReduceReport& report);

}  // namespace kiln
