// The work of `kiln bench op`: check every variant against naive, then time it, against ceilings measured in
// the same process.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/stop.h"
#include "ops/cases/bench_case.h"
#include "perf/timing/host_load.h"
#include "perf/timing/statistics.h"
#include "perf/timing/timing.h"
#include "rows/row_status.h"

namespace kiln {

struct BenchOpRequest {
  OpBench bench = {};
  std::vector<BenchShape> shapes = {};
  std::vector<DType> dtypes = {DType::f32};
  std::vector<std::string> variants = {};  // empty: all
  std::vector<BenchForm> forms = {};
  Device device = {};
  int threads = 0;
  uint64_t seed = 0;
  StopAsked stop = nullptr;  // asked between calls; true: the rows done by then are the report
};

struct BenchRow : RowOutcome {
  std::string variant, device;
  DType dtype = DType::f32;
  BenchShape shape{};
  std::string form;  // empty: all of them
  // How far from naive in fp64, and how far it may be: twice naive's own error in the dtype, and a little.
  double error = 0, allowed = 0;
  int64_t checked_rows = 0, all_rows = 0;  // at which that was looked at, and there are

  Timing timing;
  Cost cost;
  std::optional<double> speedup;     // over naive on the same device
  std::optional<Comparison> versus;  // the same of all samples; none for naive itself
  std::vector<Cost> others;          // of every variant the op has on this device, this one included

  // The larger of bytes / copy rate and FLOPs / multiply-add rate decides.
  std::string bound;           // "copy", "fma", "dot" (bf16), "amx", "gemm" (a library's)
  double ceiling = 0;          // bytes or FLOPs per second, whichever bounds
  double achieved = 0;         // in the same unit
  double ratio = 0;            // achieved / ceiling
  double own_roofline = 0;     // seconds its own bytes and operations take at the ceilings
  double roofline = 0;         // and those of the variant that needs least
  double cached_roofline = 0;  // the least of both if bytes that fit into the cache cost nothing
  bool in_cache = false;       // all it touches fits into the last-level cache, so it may beat the copy rate

  double bytes_per_second() const { return cost.bytes / timing.p50; }
  double flops_per_second() const { return cost.flops / timing.p50; }
  double of_roofline() const { return roofline / timing.p50; }
};

struct NamedRate {
  std::string name;
  double per_second;
};

struct BenchReport {
  std::string op, device, device_name, isa;
  HostLoad load;  // while it was measured
  int threads = 1;
  double copy = 0;               // bytes/s
  std::vector<NamedRate> flops;  // per dtype requested: what bounds it
  std::vector<BenchRow> rows;
  bool stopped = false;  // before its last row

  bool any_wrong() const;
  bool any_timed() const;
};

// Throws Error for what cannot be timed: meta, a variant the op does not have.
void check_bench_request(const BenchOpRequest& request);

// The request has passed check_bench_request(). `progress` gets short descriptions of the current work.
BenchReport bench_op(const BenchOpRequest& request, const std::function<void(const std::string&)>& progress);

}  // namespace kiln
