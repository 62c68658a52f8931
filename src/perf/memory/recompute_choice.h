// The recompute policy that costs least time within a memory limit, from the exact ledger: what a policy
// leaves for backward and how long it computes again come from meta runs of the real schedule, and the one
// that is chosen has been run on meta as a whole, so its peak is known to the byte.
//
// Blocks are alike, so a plan is two sets of pieces and how many blocks take each. Per block, what a set
// frees and what it costs are sums over its pieces; sets that cost more and free less than another are left
// out. Plans are tried in the order of their cost, and the first that fits is the answer. One is passed over
// unseen only where it cannot fit: a plan's peak is at least that of any plan it contains, less what it frees
// beside it.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "perf/memory/block_residuals.h"

namespace kiln {

struct PolicyPoint {
  Recompute recompute;
  std::size_t peak = 0;  // of the whole step
  double seconds = 0;    // likewise
};

// The whole step on meta with this policy.
using PolicyProbe = std::function<PolicyPoint(const Recompute&)>;

struct PolicyChoice {
  std::optional<PolicyPoint> chosen;  // none: nothing fits
  PolicyPoint none;                   // everything kept
  PolicyPoint least;                  // the least memory of all that were tried
  int probes = 0;
};

// `block`: the model, shape and variants; its device is not touched.
PolicyChoice choose_policy(const BlockRequest& block, std::size_t budget, const PolicyProbe& probe);

// What `choice.chosen` is, or Error(usage): the least bytes, and which policy reaches them.
PolicyPoint chosen_or_throw(const PolicyChoice& choice, std::size_t budget);

// "plan:norms*12: peak 1.20 GiB, 3.1 % more time than none's 1.60 GiB"
std::string policy_text(const PolicyChoice& choice);

}  // namespace kiln
