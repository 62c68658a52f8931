// The work of `kiln bench step`: whole training steps of models known by name, timed on the device, against
// what meta predicted and what the machine's own rates allow.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/model_options.h"
#include "perf/model/time_model.h"
#include "perf/timing/host_load.h"
#include "perf/timing/phase_times.h"
#include "studies/op/op.h"
#include "studies/roofline.h"
#include "studies/step/split.h"
#include "tune/tune_file.h"

namespace kiln {

class OutOfMemory;
class StepGate;

enum class GraphChoice { automatic, on, off };

struct BenchStepRequest {
  std::vector<NamedModel> sizes = {};
  std::vector<int64_t> contexts = {512};
  std::vector<Precision> precisions = {Precision::bf16};
  std::vector<std::string> presets = {"optimized"};
  std::vector<StepMode> modes = {StepMode::full};
  std::string variants = {};  // on top of each preset
  Recompute recompute = Recompute::none;
  std::vector<CompileMode> compile = {CompileMode::none};
  GraphChoice graph = GraphChoice::automatic;  // automatic: where the device can, but not in the baseline
  int64_t batch = 4;
  int micro_steps = 1;
  double clip = 0;
  int warmups = 5, steps = 10;
  bool split = false;
  int kernels = 0;                      // to list, of those that take most time; they come with the split
  std::optional<TuneFile> tuning = {};  // of the device's GEMMs; else the library's own
  Device device = {};
  int threads = 0;
  uint64_t seed = 0;
  std::string folder = {};   // of what the gate has found right already; empty: none
  StopAsked stop = nullptr;  // asked between steps; true: the rows done by then are the report
  std::chrono::steady_clock::time_point begun =
      {};  // when the command began: the first row's clock starts there
};

struct StepRow : RowOutcome {
  NamedModel size;
  StepSpec spec;
  std::string preset, variants;
  std::string policy = {};                               // how a recompute budget was met; or empty
  bool tuned = false;                                    // GEMM algorithms as `kiln tune` chose them
  std::vector<std::pair<std::string, std::string>> ops;  // op and variant, as the step takes them

  Timing timing;               // of one step, seconds, by marks on the device
  double wall = 0;             // seconds a step, by the host's clock
  double first_eager = 0;      // seconds from nothing to the end of the first step
  double first = 0;            // the same to the end of the first step that runs as the timed ones do
  bool captured = false;       // as a graph
  bool by_turns = false;       // a few steps at a time, between those of the rows beside it
  double compile_seconds = 0;  // of the first step, spent on recording and planning regions
  double first_loss = 0, last_loss = 0;
  double flops = 0;  // of the model, a step
  MemoryStats predicted, measured;
  Rates best;                        // measured ceilings
  double cache_bytes = 0;            // of the device's last cache
  std::vector<TimedOp> planned;      // every op of the step, from meta: costs, no times
  std::vector<TimedOp> least;        // the same of a step by the optimized preset, which recomputes nothing
  std::optional<StepTime> foreseen;  // predicted before it ran, where this machine is calibrated
  std::optional<PhaseTimings> phases;
  std::string why_no_phases;  // empty where they were timed
  std::optional<StepSplit> split;
  std::size_t free_memory = 0;  // of the device, where there is too little
  int64_t largest_batch = 0;    // that would fit there
  std::string ways_out = {};    // other changes that would fit, each with its peak and time; or empty

  bool timed() const { return ok(); }
  int64_t tokens() const { return spec.step.batch * spec.step.context * spec.step.micro_steps; }
  double tokens_per_second() const { return static_cast<double>(tokens()) / timing.p50; }
  double flops_per_second() const { return flops / timing.p50; }
  // What this row's own ops take at the measured rates, and what those of the best way known take.
  double own_roofline_ms() const;
  double roofline_ms() const;
  RooflineFacts roofline() const;  // both, beside the median
  double variation() const { return timing.std / timing.mean; }
  bool stable() const { return timing.stable(); }
  double prediction_error() const { return foreseen->total() / timing.p50 - 1; }
  std::string variant_set() const;  // preset, single choices and every switch, in one string
};

struct BenchStepReport {
  std::string device, device_name, isa;
  HostLoad load;  // while it was measured
  int threads = 1;
  double copy = 0;               // bytes/s
  std::vector<NamedRate> flops;  // per GEMM dtype
  std::vector<StepRow> rows;
  int kernels = 0;              // to list under a split
  bool stopped = false;         // before its last row
  std::string prediction_note;  // why there is no prediction, or how to renew it; or empty

  bool any_timed() const;
  const StepRow* first_not_timed() const;
};

// Throws Error for what cannot be timed: meta, a graph where the device cannot have one, a wrong variant.
void check_bench_step(const BenchStepRequest& request);

// The request has passed check_bench_step(). A step that finds no memory is a row like the others.
BenchStepReport bench_step(const BenchStepRequest& request,
                           const std::function<void(const std::string&)>& progress);

// A row for each combination of the request's lists, nothing in it measured yet.
std::vector<StepRow> step_rows(const BenchStepRequest& request);
// What a row runs with.
RankOptions rank_for(const BenchStepRequest& request, const StepRow& row);
// From meta: its peaks, ops and roofline. False where the device has too little memory for it, and the row
// says so.
bool plan_row(const BenchStepRequest& request, StepRow& row);
// Of a planned row: does it compute what it should? False where it does not, and the row says so.
bool check_row(const BenchStepRequest& request, StepGate& gate, StepRow& row);

// What goes wrong in `work` is what the row says then. `work` hands the observer to its allocators.
void attempt_row(const RankOptions& rank, StepRow& row, const std::function<void(OutOfMemory& full)>& work);
void attempt_row(const RankOptions& rank, StepRow& row, const OutOfMemory& full,
                 const std::function<void()>& work);

// Peaks of a step and every op it runs, from meta.
struct StepPlan {
  MemoryStats memory;
  std::vector<TimedOp> ops;
};
StepPlan plan_step(const StepSpec& spec, const RankOptions& rank);

// The largest batch, up to the one of `spec`, whose step takes at most `free_memory` bytes; 0: none does.
int64_t largest_batch(const StepSpec& spec, const RankOptions& rank, std::size_t free_memory);

}  // namespace kiln
