// The studies of `kiln memory`: steps traced on meta, which predicts every allocation, and on the device,
// which makes them; peaks over sequence lengths; and the sweep over recomputation.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "perf/memory/memory_analysis.h"
#include "perf/timing/timing.h"
#include "studies/step/step_policy.h"

namespace kiln {

struct MemoryTracedStep {
  MemoryRecord record;
  MemoryStats stats;
  Timing timing;     // of the steps after the first; none on meta
  double flops = 0;  // executed in one step, as its ops state it
};

struct MemoryTraceOptions {
  int steps = 2;  // the second finds what the first left behind
  std::size_t most_events = MemoryTrace::kEvents;
};

// On the device of `rank`, op by op: a replayed graph allocates nothing.
MemoryTracedStep trace_step(StepSpec spec, const RankOptions& rank, const MemoryTraceOptions& options = {});

RankOptions planned_for(const RankOptions& rank);  // the same rank on meta

// Bytes below which this step cannot go unsharded: what the policy keeps of every parameter for the mode.
std::size_t floor_bytes(const StepSpec& spec);

// --- peak over sequence lengths

struct ScalingPoint {
  int64_t context = 0;
  MemoryStats predicted;
  std::optional<MemoryStats> measured;
  std::size_t activations = 0;  // their peak
  std::size_t scores = 0;       // held at the peak in matrices of context x context
};

struct ScalingSeries {
  std::string attention;  // the variant
  std::vector<ScalingPoint> points;
  PowerFit fit;  // of the activations' peak
};

struct ScalingRequest {
  StepSpec spec;
  RankOptions rank;
  std::vector<int64_t> contexts;
  std::vector<std::string> attention;                                                        // variants
  std::function<bool(const StepSpec&, const MemoryStats& predicted, double flops)> measure;  // worth it?
};

std::vector<ScalingSeries> memory_scaling(const ScalingRequest& request);

// --- recomputation

struct SweepPoint {
  Recompute recompute;
  MemoryStats predicted;    // by meta: what will be
  std::size_t formula = 0;  // peak by the textbook: inputs kept + blocks in flight
  std::optional<MemoryStats> measured;
  Timing timing;  // of a step, where it ran
  double flops = 0;
  double seconds = 0;      // of a step by the request's clock; 0: it has none
  std::size_t budget = 0;  // that this is the fastest policy for; 0: it was asked for by name
};

struct RecomputeSweep {
  std::vector<SweepPoint> points;  // none, every:k in rising order, budgets in falling order, nested
  std::size_t stream = 0;          // bytes of a block's input
  std::size_t block = 0;           // bytes a block keeps
  std::size_t fixed = 0;           // what does not depend on k: the peak of `none` less its blocks
  std::size_t floor = 0;           // what the policy keeps of every parameter
  std::size_t best = 0;            // index of the least predicted peak among every:k
};

struct RecomputeSweepRequest {
  StepSpec spec;
  RankOptions rank;
  std::vector<int64_t> ks;  // block sizes; neighbours of the best are added
  int steps = 3;
  const StepClock* clock = nullptr;  // with one: also the best policies of budgets between none and nested
  std::function<bool(const StepSpec&, const MemoryStats& predicted, double flops)> measure;
};

RecomputeSweep recompute_sweep(const RecomputeSweepRequest& request);

// Peak by the textbook for spans of k among `layers` blocks.
std::size_t recompute_formula(std::size_t fixed, std::size_t stream, std::size_t block, int64_t layers,
                              int64_t k);

}  // namespace kiln
