#include "kiln/auto_bucket.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "kiln/train_options.h"
#include "perf/bucket_size.h"
#include "report/result_log.h"

namespace kiln::cli {

AutoBucket auto_bucket(const TrainRequest& r, int64_t parameters) {
  const std::string transport = r.transport == "auto" ? "threads" : r.transport;
  SumCost cost;
  std::string from = "the modelled link";
  if (!r.link.empty()) {
    cost = sum_cost(LinkModel::parse(r.link, "--link"), r.ranks);
  } else if (const auto stored =
                 stored_link(read_results(r.results).rows, transport, r.device.str(), r.ranks)) {
    cost = sum_cost(*stored);
    from = fmt::format("rows of bench allreduce in {}", r.results);
  } else {
    throw Error(
        fmt::format("--bucket-mb is 'auto', and nothing is known of {} ranks on {}", r.ranks, transport),
        fmt::format("measure them first: `kiln bench allreduce --ranks {} --transport {}`", r.ranks,
                    transport),
        ErrorKind::unavailable);
  }
  const auto width = std::min(size_of(policy_of(precision_of(r)).grad), size_of(strategy_of(r).wire));
  const BestBucket best = best_bucket(static_cast<double>(parameters) * static_cast<double>(width), cost);
  return {best.bytes / 1e6,
          fmt::format("buckets of {:.3g} MB: a sum costs {:.3g} us a call and goes at {:.3g} GB/s, by {}",
                      best.bytes / 1e6, 1e6 * cost.o, cost.w / 1e9, from)};
}

}  // namespace kiln::cli
