// A rank's schedule with the times its ops and the sums inside its model take: what the replays of gradient
// buckets (perf/comm/overlap_replay.h) and of gathered weights (perf/comm/gather_ledger.h) start from.
#pragma once

#include <functional>
#include <vector>

#include "perf/comm/gather_ledger.h"
#include "perf/comm/overlap_replay.h"
#include "perf/model/time_model.h"
#include "train/rank_schedule.h"

namespace kiln {

// What bounds an op, and what surrounds it.
struct OpTime {
  double us = 0, gap_us = 0;  // of the call; between it and the next
  bool compute_bound = false;
};
using OpTimeOf = std::function<OpTime(const TimedOp&)>;

// By the model of a machine, of which a rank has `share`. `model` must outlive what this gives.
OpTimeOf op_times_by(const TimeModel& model, double share = 1);

// Microseconds of a rank, by what they go to.
struct BusyTime {
  double compute = 0, memory = 0;  // ops, by which rate bounds each
  double gaps = 0;                 // between ops
  double tensor = 0;               // sums among the ranks that hold one model, which it waits for
  double total() const { return compute + memory + gaps + tensor; }
  BusyTime& operator+=(const BusyTime& b);
  BusyTime scaled(double by) const { return {compute * by, memory * by, gaps * by, tensor * by}; }
};

// As it would be if communication among the ranks that split the batch took no time.
struct MicroStepTimes {
  BusyTime busy;
  ComputeTimeline compute;                // gradients in the order they are complete
  double head = 0;                        // before the first sharded weight is wanted
  std::vector<GatherWindowTime> windows;  // of sharded weights, in order of use
};

struct ScheduleTimes {
  std::vector<MicroStepTimes> micro_steps;
  BusyTime update;                   // behind backward
  std::vector<GroupCall> finishing;  // calls behind backward and before the update is over
  std::vector<GroupCall> updated;    // calls that bring back what others have updated
};

// `wire`: bytes of a gradient's element between ranks. `tensor_seconds`: of calls inside the model.
ScheduleTimes times_of(const RankSchedule& schedule, const OpTimeOf& op_time, int64_t wire,
                       const CallSeconds& tensor_seconds);

// How often each recorded micro-step runs in a step of `micro_steps`.
std::vector<double> repeats_of(std::size_t recorded, int micro_steps);

double seconds_of(const GroupCall& call, const CallSeconds& seconds);

}  // namespace kiln
