// What a save reads: the device's own memory, or a copy of it that no step changes.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/named_values.h"
#include "train/checkpoint/checkpoint.h"

namespace kiln {

struct SaveSources {
  std::unique_ptr<NamedValues> weights;
  std::vector<std::pair<std::string, std::unique_ptr<NamedValues>>> state;  // of the optimizer, by name
};

SaveSources device_sources(const CheckpointParts& parts);

// Floats of a copy of all that a rank saves.
int64_t staged_elements(const ParamStore& store, const Optimizer& optimizer);

// Host memory of one such copy, taken once and used for every save. Where the device is the CPU it
// is of the rank's allocator, so that the prediction has it; for a GPU it is pinned.
class StagingMemory {
 public:
  explicit StagingMemory(const CheckpointParts& parts);
  ~StagingMemory();
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;

  // Copies now; the sources read the copy, on any thread.
  SaveSources copy(const CheckpointParts& parts);
  std::size_t bytes() const { return static_cast<std::size_t>(elements_) * sizeof(float); }

 private:
  RankContext& ctx_;
  int64_t elements_;
  Tensor on_cpu_;
  float* memory_ = nullptr;
};

}  // namespace kiln
