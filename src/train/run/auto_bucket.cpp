#include "train/run/auto_bucket.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/plain_number.h"
#include "perf/comm/bucket_size.h"
#include "rows/result_log.h"
#include "train/run/train_options.h"

namespace kiln {

namespace {

struct Known {
  SumCost cost;
  std::string from;
};

// In the folder of results, or next to the run, where `bench allreduce` with the default --out leaves them.
Known known_link(const TrainRequest& r) {
  if (!r.link.empty()) return {sum_cost(LinkModel::parse(r.link, "--link"), r.ranks), "the modelled link"};
  const std::string transport = r.transport == "auto" ? "threads" : r.transport;
  for (const std::string& folder : {r.results, std::filesystem::path(r.run).parent_path().string()}) {
    if (folder.empty()) continue;
    if (const auto fit = stored_link(read_results(folder).rows, transport, r.device.str(), r.ranks))
      return {sum_cost(*fit), fmt::format("rows of bench allreduce in {}", folder)};
  }
  throw Error(
      fmt::format("--bucket-mb is 'auto', and nothing is known of {} ranks on {}", r.ranks, transport),
      fmt::format("measure them first: `kiln bench allreduce --ranks {} --transport {}`", r.ranks, transport),
      ErrorKind::unavailable);
}

}  // namespace

AutoBucket auto_bucket(const TrainRequest& r, int64_t parameters) {
  const auto [cost, from] = known_link(r);
  const auto width = std::min(size_of(policy_of(precision_of(r)).grad), size_of(strategy_of(r).wire));
  const BestBucket best = best_bucket(static_cast<double>(parameters) * static_cast<double>(width), cost);
  return {best.bytes / 1e6,
          fmt::format("buckets of {} MB: a sum costs {} us a call and goes at {} GB/s, by {}",
                      plain(best.bytes / 1e6, 3), plain(1e6 * cost.o, 3), plain(cost.w / 1e9, 3), from)};
}

}  // namespace kiln
