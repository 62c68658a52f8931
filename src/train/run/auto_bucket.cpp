#include "train/run/auto_bucket.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/plain_number.h"
#include "perf/comm/bucket_size.h"
#include "train/run/known_link.h"
#include "train/run/train_options.h"

namespace kiln {

AutoBucket auto_bucket(const TrainRequest& r, int64_t parameters) {
  const KnownLink link = known_link(r, "--bucket-mb");
  const SumCost cost = link.model ? sum_cost(*link.model, r.ranks) : sum_cost(link.fit);
  const auto width = std::min(size_of(policy_of(precision_of(r)).grad), size_of(strategy_of(r).wire));
  const BestBucket best = best_bucket(static_cast<double>(parameters) * static_cast<double>(width), cost);
  return {best.bytes / 1e6,
          fmt::format("buckets of {} MB: a sum costs {} us a call and goes at {} GB/s, by {}",
                      plain(best.bytes / 1e6, 3), plain(1e6 * cost.o, 3), plain(cost.w / 1e9, 3), link.from)};
}

}  // namespace kiln
