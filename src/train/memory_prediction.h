// How much memory a run will take, known before its first step: the real model and the real step run on
// `meta`, where nothing is computed and the allocator counts as it will on the device. The figures are those
// of the run itself, to the byte, for any precision, recomputation and choice of variants.
#pragma once

#include "autograd/param_store.h"
#include "device/allocator.h"
#include "model/config.h"
#include "train/step.h"

namespace kiln {

// Elements, by what they are for. A tied head has none of its own.
struct ParamGroups {
  int64_t embedding = 0, attention = 0, mlp = 0, norms = 0, head = 0;
  int64_t total() const { return embedding + attention + mlp + norms + head; }
};

ParamGroups count_params(const ModelConfig& config);

struct MemoryRequest {
  ModelConfig model;
  ParamLayout layout;
  StepOptions step;
  bool evaluates = false;  // validation between steps, with the step's batch and context
};

// Peaks per tag, each at its own moment, and of all together. `rank` is what the run's context is made with;
// nothing is allocated on its device.
MemoryStats predict_memory(const MemoryRequest& request, const RankOptions& rank);

}  // namespace kiln
