// What is known of the links between a run's ranks, before it begins: --link, or rows of `bench allreduce`.
#pragma once

#include <optional>
#include <string>

#include "perf/comm/link_fit.h"
#include "train/run/train.h"

namespace kiln {

struct KnownLink {
  std::optional<LinkModel> model;  // as it is simulated; else
  LinkFit fit;                     // of all-reduces that were measured
  std::string from;                // "the modelled link"
};

// Throws Error(unavailable) where there is neither, naming `option`: a guess would look like a prediction.
KnownLink known_link(const TrainRequest& request, const std::string& option);

}  // namespace kiln
