#include "train/replica_check.h"

#include <algorithm>
#include <map>

#include "base/crc32c.h"
#include "dist/launch/rank_agreement.h"

namespace kiln {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;  // bytes read back at a time

uint32_t hash_of(RankContext& ctx, const Tensor& flat) {
  const auto bytes = static_cast<int64_t>(flat.bytes().value);
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(kPiece, bytes)));
  uint32_t sum = 0;
  for (int64_t at = 0; at < bytes; at += kPiece) {
    const auto n = static_cast<std::size_t>(std::min(kPiece, bytes - at));
    ctx.backend().copy_to_host(piece.data(), flat.raw() + at, n, ctx.compute());
    ctx.synchronize();
    sum = crc32c(std::span(piece).first(n), sum);
  }
  return sum;
}

bool updates_all(const Optimizer& optimizer, const ParamStore& params) {
  int64_t updated = 0, all = 0;
  for (const ParamSpan& s : optimizer.spans()) updated += s.value.numel();
  for (const Param& p : params.params()) all += p.trainable ? p.padded : 0;
  return updated == all;
}

// What most ranks have; of as many, what the lowest rank has.
double majority(const std::vector<std::vector<double>>& ranks, std::size_t tensor) {
  std::map<double, int> count;
  for (const auto& rank : ranks) ++count[rank[tensor]];
  double best = ranks.front()[tensor];
  for (const auto& rank : ranks) {
    if (count[rank[tensor]] > count[best]) best = rank[tensor];
  }
  return best;
}

}  // namespace

std::vector<ReplicaTensor> replicated_tensors(const ParamStore& params, const Optimizer& optimizer) {
  std::vector<ReplicaTensor> tensors;
  for (const Param& p : params.params()) {
    if (p.shards == 1) tensors.push_back({p.name, params.local_value(p)});
  }
  if (params.shards() > 1 || !updates_all(optimizer, params)) return tensors;
  if (params.low().defined()) tensors.push_back({"low halves of the weights", params.low()});
  for (const OptimizerState& state : optimizer.state())
    tensors.push_back({cat("the optimizer's ", state.name), state.values});
  return tensors;
}

bool ReplicaCheck::needs_result(int64_t step) const {
  return step % every_ == 0 || (save_every_ > 0 && step % save_every_ == 0);
}

void ReplicaCheck::after_step(int64_t step) {
  if (needs_result(step)) check(step);
}

void ReplicaCheck::check(int64_t step) {
  std::vector<double> mine;
  for (const ReplicaTensor& t : tensors_) mine.push_back(hash_of(ctx_, t.tensor));
  const auto ranks = all_gather_numbers(ctx_, comm_, mine, "hashes of replicas");
  std::string differing, first;
  int tensors = 0;
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const double right = majority(ranks, t);
    std::string here;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (ranks[r][t] != right) here += cat(here.empty() ? "" : ", ", r);
    }
    if (here.empty()) continue;
    if (tensors++ == 0) {
      differing = here;
      first = tensors_[t].name;
    }
  }
  if (tensors == 0) return;
  throw Error(cat("after step ", step, " rank ", differing, " holds another ", first, " than ",
                  ranks.size() > 2 ? "most ranks" : "rank 0", "; ", tensors, " of ", tensors_.size(),
                  " tensors differ"),
              ranks.size() > 2
                  ? "suspect that rank's memory or link; resume without its machine"
                  : "which of two is right cannot be told: suspect the memory and the link of both");
}

}  // namespace kiln
