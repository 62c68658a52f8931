// Options of a communicator, for any transport.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "dist/comm/link_model.h"

namespace kiln {

// How processes form sums. `deterministic`: each rank sums one part of the tensor pairwise in the
// accumulation type, as the threads transport does, with MPI or NCCL carrying the pieces: all runs and all
// transports give the same bits. `library`: MPI's or NCCL's own reductions, in whatever order they choose;
// bf16 and fp16 are rounded after each addition.
enum class ReductionOrder { deterministic, library };

struct CommOptions {
  // How long a rank waits for the others in one call before it gives up and says who is missing.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  CommAlgorithm algorithm = CommAlgorithm::direct;
  // NCCL with deterministic sums: the others' copies of this rank's part are outside the tensor
  // (deterministic_scratch).
  bool reduction_in_scratch = false;
  std::optional<LinkModel> link{};  // calls take as long as on such a link, at least
  std::string flight_folder{};      // where the last calls are written when one fails; empty: nowhere
};

}  // namespace kiln
