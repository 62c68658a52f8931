// The work of `kiln compare`: a training step's theory, roofline, predicted and measured time, op by op, and
// the gap between roofline and measurement by cause.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perf/model/gap.h"
#include "perf/model/time_model.h"
#include "perf/timing/host_load.h"
#include "studies/measure/measured_step.h"

namespace kiln {

struct CompareRequest {
  MeasureRequest measure = {};
  std::string hardware = {};  // a name or a file; empty: this machine's calibration, else rates measured here
};

// Calls of one op, variant and pass. Times in ms.
struct ComparedOp {
  std::string op = {}, variant = {}, pass = {};
  int calls = 0;
  Cost cost = {};
  double executed_roofline = 0;  // of all that ran: `gap.roofline` is of what is in theory
  const char* bound = "memory";  // or compute
  std::optional<double> predicted = {};
  double own = 0;                    // of its calls, without what passed before them
  Gap gap = {};                      // `measured` has that, too
  std::vector<double> samples = {};  // of `measured`, a step each
};

struct ComparedStep {
  MeasuredStep measured;
  // The slowest first; the last is what is outside of calls. None where the step was not timed.
  std::vector<ComparedOp> ops = {};
  Gap gap = {};  // of the whole step
  std::optional<double> predicted = {};
  double unknown = 0;  // of `predicted`: calls of a kind the calibration has not seen
  Rates rates = {};
  RunFacts facts = {};

  bool timed() const { return measured.timed(); }
  double executed_roofline() const;
};

struct CompareReport {
  std::string device, device_name, isa;
  int threads = 1;
  double copy = 0;               // bytes/s of the rooflines
  std::vector<NamedRate> flops;  // per GEMM dtype
  bool rates_measured = true;    // here and now; else of the hardware file
  std::string rates_from;        // a sentence
  HostLoad load;                 // what else the machine did meanwhile
  std::string prediction;        // why there is none, or what it is based on; or empty
  std::vector<ComparedStep> steps;
};

// The op of the row that stands for what is outside of calls.
inline constexpr const char* kOutside = "outside of ops";

// One row each of the requests, which share a device; timed by turns.
CompareReport compare_steps(std::span<const CompareRequest> requests, const Progress& progress);

// Of calls that were timed: theory and times into rows with causes. `model` has the rates.
void explain_step(ComparedStep& step, const TimeModel& model, DType compute, CpuIsa isa);

}  // namespace kiln
