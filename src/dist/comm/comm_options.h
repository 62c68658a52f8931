// How a communicator behaves, whatever carries it.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "dist/comm/link_model.h"

namespace kiln {

// How processes form sums. `ranked`: each rank sums one part of the tensor pairwise in the accumulation type,
// as the threads transport does, with MPI or NCCL carrying the pieces: all runs and all transports give the
// same bits. `engine`: MPI's or NCCL's own reductions, in whatever order they choose; bf16 and fp16 are
// rounded after each addition.
enum class RankSums { ranked, engine };

struct CommOptions {
  // How long a rank waits for the others in one call before it gives up and says who is missing.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  CommAlgorithm algorithm = CommAlgorithm::direct;
  // NCCL with ranked sums: the others' copies of this rank's part lie beside the tensor (ranked_scratch).
  bool sums_in_scratch = false;
  std::optional<LinkModel> link{};  // calls take as long as on such a link, at least
  std::string flight_folder{};      // where the last calls are written when one fails; empty: nowhere
};

}  // namespace kiln
