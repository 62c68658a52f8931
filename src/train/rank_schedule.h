// What one rank of a run does in a step, in order, and the memory it takes: the real model, strategy and step
// run on meta, watched. Nothing in it is a time: those come from a model of the machine (schedule_times.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dist/comm/comm_call.h"
#include "perf/timing/op_times.h"
#include "train/memory_prediction.h"

namespace kiln {

struct ScheduledWeight {
  std::string name;
  int64_t padded = 0, offset = 0;  // elements: of the whole; in the rank's flat buffers
  bool sharded = false;            // gathered before it is used
};

struct WeightUse {
  std::size_t weight = 0;  // of RankSchedule::weights
  DType as = DType::f32;
  std::string_view phase;
};

struct GroupCall {
  Collective what = Collective::barrier;
  int64_t bytes = 0;  // what this rank brings
};

struct ScheduleEvent {
  enum class Kind : uint8_t {
    micro_step,   // one begins
    op,           // of `ops`
    use,          // of `uses`: a weight is wanted
    gradient,     // of `weights`: it is complete on this rank
    tensor_call,  // of `tensor_calls`: the rank waits for it
    data_call,    // of `data_calls`: how it is waited for is the strategy's matter
    gradients,    // backward is over: the rest of the sums, then the update
    updated,      // what other ranks have updated comes back
  };
  Kind kind = Kind::op;
  std::size_t index = 0;
};

struct RankSchedule {
  std::vector<TimedOp> ops;  // without times
  std::vector<ScheduledWeight> weights;
  std::vector<WeightUse> uses;
  std::vector<GroupCall> tensor_calls, data_calls;  // among the ranks of one model, and of one part of it
  std::vector<ScheduleEvent> events;
  DType grad = DType::f32;  // of the gradients as they are kept
  MemoryStats memory;       // as predict_memory() gives it

  Cost cost() const;  // of all ops
};

// Of the rank `rank` says, in a run of its `world`. At most three micro-steps are in it: those after the
// second are like it, but for the last.
RankSchedule record_schedule(const MemoryRequest& request, const RankOptions& rank);

// The same of a model that is alike but for its layers, from those of two depths: 2 and 3 layers give any
// depth. Only totals: `shallow` and `deep` are whole schedules.
Cost cost_of_layers(const RankSchedule& shallow, const RankSchedule& deep, int64_t deep_layers,
                    int64_t layers);

}  // namespace kiln
