// The work of `kiln ablate`: the baseline, each optimization by itself, all of them cumulatively, and one at
// a time taken away from all of them, every row checked by the quality gate before it is timed. A row is
// stored as soon as it is done, and what is shown is made of the stored rows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/precision.h"
#include "base/json.h"
#include "model/model_options.h"
#include "perf/timing/host_load.h"
#include "studies/ablation/quality_gate.h"
#include "studies/op/op.h"

namespace kiln {

struct AblateRequest {
  NamedModel size = {};
  Precision base = Precision::fp32;  // of the baseline: in bf16 matmuls hide less of what fusing gains
  int64_t batch = 4, context = 512;
  int micro_steps = 1;
  int warmups = 3, steps = 10;
  int gate_steps = 8;                  // of training, before the losses are compared
  double tolerance = 1;                // times what the gate allows
  std::vector<std::string_view> only;  // switches, in the order they are added up
  Device device;
  int threads = 0;
  uint64_t seed = 0;
  std::string out = "runs";
  bool fresh = false;                    // measure again what is stored
  std::function<bool()> stop = nullptr;  // asked between steps; true: the rows done by then are the report
};

// What is to be a row.
struct PlannedRow {
  // baseline, alone, added, without: all but one, ranks: of several, or again: the baseline once more, after
  // all others
  std::string group;
  std::string name;                  // the switch that makes the row; empty of the baseline
  std::vector<std::string_view> on;  // of an `added` row: known when those before it are done
  std::string cannot;                // why this device cannot do it
  // What it is compared with, and on the CPU alternates with: of `without` all of them, else the baseline.
  std::vector<std::string_view> against = {};
};
std::vector<PlannedRow> ablation_plan(const std::vector<std::string_view>& only, const Device& device);

struct AblateReport {
  std::string device, device_name, isa;
  HostLoad load;  // while it was measured
  int threads = 1;
  double copy = 0;               // bytes/s
  std::vector<NamedRate> flops;  // per GEMM dtype
  bool ceilings_stored = false;  // they are those of the stored baseline, and were not measured again
  std::vector<Json> rows;
  std::vector<std::string> notes;
  std::size_t planned = 0;  // rows there should be
  bool stopped() const { return rows.size() < planned; }
};

// Throws Error for what cannot be checked or timed.
void check_ablate(const AblateRequest& request);

// `store` gets the line of each row as soon as it is done; rows in `stored` of the same study are taken from
// there, and with the baseline's row the ceilings: every row of a study is predicted by the same. A baseline
// that cannot run is an Error: there is nothing to compare with.
AblateReport ablate(const AblateRequest& request, const std::vector<Json>& stored,
                    const std::function<void(const std::string&)>& progress,
                    const std::function<void(const std::string& line)>& store);

}  // namespace kiln
