// A batch from the loader to the training step.
#pragma once

#include <cstdint>
#include <span>

namespace kiln {

// One micro-step's tokens on the host: B x T inputs and the targets that follow them. On meta, which reads
// none, both are empty: a batch of any size is planned at once, without its memory.
struct HostBatch {
  std::span<const int32_t> tokens;
  std::span<const int32_t> targets;
};

}  // namespace kiln
