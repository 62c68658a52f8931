// The work of `kiln bench allreduce`: how long sums over ranks take, by size, ranks and what carries them,
// and the latency and bandwidth that the times tell of.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "dist/launch/ranks.h"
#include "perf/comm/link_fit.h"
#include "report/tables/text_table.h"

namespace kiln::cli {

struct BenchAllReduceRequest {
  std::vector<Bytes> sizes;
  std::vector<int> ranks;
  std::vector<std::string> transports;  // threads, mpi, nccl
  std::vector<std::string> algorithms;  // direct, ring, alternate
  std::vector<DType> dtypes;
  Device device;
  int warmups = 5, samples = 30;
  double timeout = 60;
  uint64_t seed = 0;
  std::string sums = "auto";             // ranked or engine; auto: ranked of mpi, engine of nccl
  std::function<bool()> stop = nullptr;  // asked between groups of cells
};

// What was measured between the ranks of one transport, number and algorithm.
struct AllReduceFit {
  std::string transport, algorithm, dtype;
  int ranks = 1;
  LinkFit fit;
};

struct BenchAllReduceReport {
  std::string device, device_name, isa;
  int threads = 1;
  double copy = 0;                           // bytes/s, read and written, of all threads
  std::vector<nlohmann::ordered_json> rows;  // as stored; those that were skipped have a reason
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

// Adds to every timed row what the fit of its group predicts, and which of the two bounds it.
std::vector<AllReduceFit> fit_rows(std::vector<nlohmann::ordered_json>& rows);

std::string allreduce_page(const BenchAllReduceReport& report, PageFormat format);
void write_allreduce_charts(const std::string& out, const BenchAllReduceReport& report);

}  // namespace kiln::cli
