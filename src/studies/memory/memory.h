// The work of `kiln memory`: steps traced on meta and, where that takes seconds, on the device; what the
// traces say, kept as rows; charts and snapshots written on the way.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/model_options.h"
#include "studies/memory/memory_study.h"
#include "studies/variant_check.h"

namespace kiln {

enum class MeasureChoice { automatic, always, never };

struct MemoryStudyRequest {
  std::vector<NamedModel> sizes = {};
  std::vector<int64_t> contexts = {};  // none: as the study has them
  std::vector<Precision> precisions = {Precision::fp32};
  std::vector<StepMode> modes = {};  // none: as the study has them
  std::string preset = "optimized", variants = {};
  Recompute recompute = Recompute::none;
  CompileMode compile = CompileMode::none;
  int64_t batch = 4;
  int micro_steps = 1;
  int steps = 2;       // to trace; the second finds what the first left behind
  double detail = 10;  // per cent of all allocations, the largest
  int64_t most_events = MemoryTrace::kEvents;
  std::vector<std::string> exports = {"svg", "html", "pickle"};  // of those, and json
  std::string folder = {};                                       // for them
  MeasureChoice measure = MeasureChoice::automatic;
  Device device = {};
  int threads = 0;
  uint64_t seed = 0;
  StopAsked stop = nullptr;  // asked before each row; true: the rows done by then are the report
};

struct MemoryRow {
  NamedModel size;
  StepSpec spec;
  MemoryStats predicted;
  std::optional<MemoryStats> measured;
  std::string not_measured;  // why not
  std::string policy = {};   // how a recompute budget was met; or empty
  std::size_t floor = 0, stream = 0, params = 0;
  // Of the trace: on the device where it ran, else on meta.
  MemoryPeak peak;
  Phase peak_phase = Phase::setup;
  PerTag<std::size_t> own_peak{};
  std::vector<PhasePeak> phases;
  std::size_t events = 0, scores = 0;
  int64_t dropped = 0;
  std::vector<MemoryGroup> by_op, by_line, by_layer;
  struct Large {
    std::size_t bytes = 0;
    int64_t count = 0, live_at_peak = 0;
    std::string op, line, function;
    std::vector<std::string> layers;
    Tag tag = Tag::activation;
  };
  std::vector<Large> largest;
  std::vector<std::string> files;
};

struct MemoryReport {
  MemoryStudyRequest request;
  std::vector<MemoryRow> rows;
};

MemoryReport memory_report(const MemoryStudyRequest& request,
                           const std::function<void(const std::string&)>& progress);

struct ScalingReport {
  ScalingRequest request;
  std::string size;
  std::vector<ScalingSeries> series;
  std::vector<std::string> files;  // charts
};

// Of one model, precision and phase, by several variants of attention: "naive,flash"; empty: the usual two.
ScalingReport scaling_report(const MemoryStudyRequest& request, const std::string& attention);

struct RecomputeReport {
  StepSpec spec;
  std::string size, device;
  RecomputeSweep sweep;
  std::string not_measured;
  std::string clock, clock_note;  // what the seconds of its points go by, and why they are bounds
  std::vector<std::string> files = {};
};

// Spans of `blocks` recomputed as one; none: 1 to all, doubling.
RecomputeReport recompute_report(const MemoryStudyRequest& request, std::vector<int64_t> blocks, int steps);

// What a step of the request runs with, and whether running it is a matter of seconds.
RankOptions memory_rank(const MemoryStudyRequest& request, StepSpec& spec);
std::string why_not_run(const MemoryStudyRequest& request, const MemoryStats& predicted, double flops,
                        int steps);

}  // namespace kiln
