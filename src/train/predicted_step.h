// The time of a step of one rank, from its schedule: ops by the machine's time model, collectives by the
// ring's formulas on its links, their overlap by the replays of the overlap ledgers.
#pragma once

#include <string_view>

#include "dist/strategy/strategies.h"
#include "perf/comm/prefetch_depth.h"
#include "perf/comm/topology.h"
#include "perf/model/time_model.h"
#include "train/layout.h"
#include "train/schedule_times.h"

namespace kiln {

// Seconds of a step, by what they go to; they add up to it.
struct StepParts {
  double compute = 0, memory = 0;  // ops, by which of the device's rates bounds each
  double gaps = 0;                 // between ops, and once a step
  double tensor = 0;               // sums among tensor-parallel ranks
  double gradients = 0;            // sums of gradients, as far as they are exposed
  double gathers = 0;              // of weights, as far as they are exposed
  double bubble = 0;               // stages of a pipeline that wait for each other
  double other = 0;                // sums of the norm and the loss

  double total() const { return compute + memory + gaps + tensor + gradients + gathers + bubble + other; }
  // The largest: "compute", "memory bandwidth", "op gaps", "tensor-parallel sums", "gradient communication",
  // "weight gathers", "pipeline bubble", "scalars".
  std::string_view bound() const;
};

struct PlanMachine {
  const TimeModel& time;
  Topology topology;
  double share = 1;  // of the machine that is a rank's own, where ranks share its cores
};

struct PredictedStep {
  StepParts parts;
  double communication = 0;  // seconds of collectives among data-parallel ranks, hidden or not
  int prefetch = 0;          // of fsdp
  std::string why_prefetch;
};

// A schedule that no strategy of several ranks is in has no communication to predict. `sharing`: what the
// schedule was recorded with. `free_bytes`: bytes for deeper prefetch than 0; below 0: the depth is that of
// `sharing`.
PredictedStep predict_step(const Layout& layout, const RankSchedule& schedule, const PlanMachine& machine,
                           int micro_steps, const StrategyOptions& sharing, int64_t free_bytes = -1);

// The buckets a strategy makes of its gradients.
BucketOptions buckets_of(const Layout& layout, const StrategyOptions& sharing,
                         const std::vector<ReadyGradient>& gradients);

}  // namespace kiln
