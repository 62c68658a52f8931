// A pipeline on paper: p stages of a model's layers, m micro-batches of one sequence each, every stage doing
// one forward and one backward in turn (1F1B). kiln does not run it.
//
//   step     (m + p - 1) ticks, a tick being the slowest stage's forward and backward of a micro-batch, then
//            the sum of a stage's gradients and its update
//   bubble   p - 1 of these ticks: (p - 1) / (m + p - 1) of them, and what is sent between stages meanwhile
//   memory   1/p of the layers' state, and what min(p, m) micro-batches save for backward on the first stage
//
// Layers are alike: what one takes is the difference of models of 3 and of 2.
#pragma once

#include <functional>

#include "train/predicted_step.h"

namespace kiln {

struct PipelineWork {
  Layout layout;  // stages > 1
  int64_t layers = 0;
  int64_t micro_batches = 1;     // of a step, through one pipeline
  int64_t boundary_bytes = 0;    // of what a stage hands on
  int64_t layer_parameters = 0;  // of one layer, and of the largest of what is not in the layers
  int64_t end_parameters = 0;
  PrecisionPolicy policy = {};
};

// A schedule of one device with so many layers and a micro-batch of one sequence.
using ScheduleOfLayers = std::function<RankSchedule(int64_t layers)>;

struct PipelineStep {
  StepParts parts;
  MemoryStats memory;  // of the first stage
  double bubble_share = 0;
};

double bubble_share(int64_t stages, int64_t micro_batches);  // (p - 1) / (m + p - 1)

PipelineStep predict_pipeline(const PipelineWork& work, const ScheduleOfLayers& schedule_of,
                              const PlanMachine& machine);

}  // namespace kiln
