// What a step would have taken with other buckets or another link: the gradients become ready when they did,
// and their collectives run one after the other, each as long as a formula says. The answer is a ledger like
// that of a step that ran.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dist/comm/link_model.h"
#include "dist/strategy/bucketed.h"
#include "perf/comm/overlap_ledger.h"

namespace kiln {

// A step as it would be on a link that takes no time.
struct ComputeTimeline {
  double backward_begin = 0, backward_end = 0;
  double end = 0;
  std::vector<ReadyGradient> gradients;
  std::vector<LedgerEntry> others;  // collectives behind the gradients', which stall the rank
};

// What is left of a measured step without the time in which the rank was stalled. What a thread
// of the communicator took from the concurrent compute stays in.
ComputeTimeline compute_of(const OverlapLedger& ledger);

// When the last of several ranks had come so far, in everything: a sum begins then, and a step has ended
// then. All have the same gradients, in the same order. Ranks that share a GPU alternate on it: of two on an
// H200 the first was done with xl25's step (bf16, two sequences each) after 67 ms, the second after 80.
ComputeTimeline last_of(std::span<const ComputeTimeline> ranks);

// Seconds of a collective to which this rank brings so many bytes.
using CallSeconds = std::function<double(std::string_view collective, int64_t bytes)>;
CallSeconds seconds_on(const LinkModel& link, int ranks, CommAlgorithm algorithm = CommAlgorithm::direct);

OverlapLedger replay(const ComputeTimeline& compute, const BucketOptions& form, const CallSeconds& seconds);

// How long the collectives of such a step take by themselves, those that are no buckets included; us.
double communication_alone(const ComputeTimeline& compute, const BucketOptions& form,
                           const CallSeconds& seconds);

struct WhatIf {
  std::string change;  // "bandwidth x2"
  OverlapLedger ledger;
};

// As it is, the bandwidth doubled, and buckets of four times the cap, where the form has a cap.
std::vector<WhatIf> what_ifs(const ComputeTimeline& compute, const BucketOptions& form, const LinkModel& link,
                             int ranks);

}  // namespace kiln
