#include "perf/comm/zero_theory.h"

#include "base/error.h"

namespace kiln {

ZeroTheory zero_theory(std::string_view stage, const PrecisionPolicy& policy, int64_t parameters, int ranks) {
  const auto p = static_cast<double>(parameters), n = static_cast<double>(ranks);
  const auto width = [](DType t) { return static_cast<double>(size_of(t)); };
  const double weights = p * width(policy.value), low = policy.split ? 2 * p : 0;
  const double grads = p * width(policy.grad), moments = 2 * p * width(policy.state);
  const double once = ranks > 1 ? (n - 1) / n : 0;
  if (stage == "0") return {weights, low, grads, moments, once * 2 * grads, 2};
  if (stage == "1:simple") return {weights, low, grads, moments / n, once * (2 * grads + weights + low), 3};
  if (stage == "1") return {weights, low / n, grads, moments / n, once * (grads + weights), 2};
  if (stage == "2") return {weights, low / n, grads / n, moments / n, once * (grads + weights), 2};
  if (stage == "3")
    return {weights / n, low / n, grads / n, moments / n, once * (grads + 2 * p * width(policy.compute)), 3};
  throw Error(cat("no stage of ZeRO is called ", stage));
}

double sent_bytes(const OverlapLedger& ledger, int ranks) {
  if (ranks < 2) return 0;
  constexpr int64_t kScalars = 64;
  double whole = 0;  // of the tensors, once for each time they go round
  for (const LedgerEntry& e : ledger.entries) {
    if (e.bytes <= kScalars) continue;
    const auto bytes = static_cast<double>(e.bytes);
    if (e.collective == "all_reduce")
      whole += 2 * bytes;
    else if (e.collective == "all_gather")
      whole += bytes * ranks;  // each brings its part
    else if (e.collective == "reduce_scatter" || e.collective == "broadcast")
      whole += bytes;
  }
  return whole * (ranks - 1) / ranks;
}

}  // namespace kiln
