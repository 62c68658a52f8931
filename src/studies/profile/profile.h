// The work of `kiln profile`: a training step traced, its forward pass as inference runs it and
// attention by parts; everything on the pages is computed from these traces.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/model_options.h"
#include "perf/timing/host_load.h"
#include "perf/trace/step_tracer.h"
#include "perf/trace/trace_tables.h"
#include "studies/op/op.h"
#include "studies/step/step.h"
#include "tune/tune_file.h"

namespace kiln {

inline constexpr int64_t kLargestContext = -1;

struct ProfileRequest {
  std::vector<NamedModel> sizes = {};
  std::vector<int64_t> contexts = {};  // kLargestContext: the largest power of two whose step fits
  std::vector<Precision> precisions = {Precision::bf16};
  std::string preset = "optimized", variants = {};
  Recompute recompute = Recompute::none;
  CompileMode compile = CompileMode::none;
  GraphChoice graph = GraphChoice::automatic;
  int64_t batch = 1;
  int micro_steps = 1;
  TraceOptions trace = {};
  std::optional<TraceSource> source = {};  // of a GPU's times; else CUPTI, or events where it is refused
  std::vector<StepPhase> phases = {StepPhase::forward, StepPhase::backward,
                                   StepPhase::update};  // whose kernels are listed
  double above = 1;     // per cent of forward from which a kernel that is no matmul is named
  int kernels = 8;      // to list for each phase
  bool stacks = false;  // also who called each op, in its own pass
  std::optional<TuneFile> tuning = {};
  Device device = {};
  int threads = 0;
  uint64_t seed = 0;
  std::string folder = {};  // for the timelines
};

// Attention's three parts at the step's shape, and all of attention as the step runs it.
struct AttentionStudy {
  bool in_the_step = false;  // else it was run separately, as `composed`
  int layers = 1;            // whose parts these are
  std::array<AttentionPart, 3> parts;
  std::string variant;  // of the step
  double step_ms = 0;   // of attention in the step's forward, all layers
  std::string why_not;  // where there are no parts
};

struct StepProfile : RowOutcome {
  NamedModel size;
  StepSpec spec;
  std::string preset, variants;
  std::string policy = {};  // how a recompute budget was met; or empty
  bool tuned = false;

  TraceSource source = TraceSource::clock;
  std::string note;       // why not CUPTI, where it was wanted
  bool captured = false;  // the timed steps were graphs
  TracedSteps full;       // the training step
  TracedSteps forward;    // the loss with no gradient wanted
  TracedSteps stacks;     // the training step again, with the callers of its ops; empty where not requested
  Timing timer;           // of the step without a tracer, seconds
  std::optional<double> host_ms;
  MemoryStats predicted, measured;
  int planned_ops = 0;  // what meta said the step would call
  OpRates rates;
  ModelWork model;
  AttentionStudy attention;
  std::size_t free_memory = 0;
  std::string file;    // the timeline, for Perfetto
  std::string viewer;  // the same as a page

  bool traced() const { return ok(); }
  const Trace& step() const { return full.median(); }
  double tracing_cost() const;  // share of a step; by pairs where steps with and without alternated
  std::optional<PlainStep> plain() const {
    if (!host_ms) return {};
    return PlainStep{1e3 * timer.p50, *host_ms};
  }
  // Of the traced step, against the timer.
  double difference() const { return timer.p50 > 0 ? step().ms() / (1e3 * timer.p50) - 1 : 0; }
  std::string name() const;  // "tiny-bf16-b1-ctx128"
};

struct ProfileReport {
  std::string device, device_name, isa;
  HostLoad load;  // while it was measured
  int threads = 1;
  double copy = 0;               // bytes/s
  std::vector<NamedRate> flops;  // per GEMM dtype
  std::vector<StepPhase> phases;
  double above = 0.01;  // a share
  int kernels = 8;
  std::vector<StepProfile> steps;
  bool stopped = false;  // before its last step
};

// Throws Error for what cannot be traced: meta, a graph where the device has none, a source it does not have.
void check_profile(const ProfileRequest& request);

// The request has passed check_profile(). Writes the timelines. Throws Stopped where `trace.stop` ends it
// before its first. A step that runs out of memory is marked so.
ProfileReport run_profile(const ProfileRequest& request,
                          const std::function<void(const std::string&)>& progress);

ModelWork model_work(const StepSpec& spec);

// The largest power of two, from 128 on, for which `fits` says yes; 128 where none does.
int64_t largest_context(const std::function<bool(int64_t)>& fits);

}  // namespace kiln
