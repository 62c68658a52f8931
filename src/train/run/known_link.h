// What is known of the links between a run's ranks, before it begins: --link, rows of `bench allreduce`, or
// the machine's calibration.
#pragma once

#include <optional>
#include <string>

#include "perf/comm/link_fit.h"
#include "perf/comm/overlap_replay.h"
#include "train/run/train.h"

namespace kiln {

struct KnownLink {
  std::optional<LinkModel> model;  // of each rank; else
  LinkFit fit;                     // of all-reduces that were measured
  std::string from;                // "the modelled link"
};

// `out`, or the folder the run's own is in, where that has this machine's calibration and `out` has none.
std::string results_folder(const TrainRequest& request, const std::string& out);

// Nothing where there is none of them.
std::optional<KnownLink> find_link(const TrainRequest& request);
LinkModel link_of_a_rank(const KnownLink& link, int ranks);
CallSeconds seconds_between(const KnownLink& link, int ranks);

// Throws Error(unavailable) where there is none, naming `option`: a guess would look like a prediction.
KnownLink known_link(const TrainRequest& request, const std::string& option);

}  // namespace kiln
