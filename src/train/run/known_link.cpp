#include "train/run/known_link.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "perf/comm/bucket_size.h"
#include "rows/result_log.h"

namespace kiln {

// Rows are in the folder of results, or next to the run, where `bench allreduce` with the default --out
// leaves them.
KnownLink known_link(const TrainRequest& r, const std::string& option) {
  if (!r.link.empty()) return {LinkModel::parse(r.link, "--link"), {}, "the modelled link"};
  const std::string transport = r.transport == "auto" ? "threads" : r.transport;
  for (const std::string& folder : {r.results, std::filesystem::path(r.run).parent_path().string()}) {
    if (folder.empty()) continue;
    if (const auto fit = stored_link(read_results(folder).rows, transport, r.device.str(), r.ranks))
      return {std::nullopt, *fit, fmt::format("rows of bench allreduce in {}", folder)};
  }
  throw Error(
      fmt::format("{} is 'auto', and nothing is known of {} ranks on {}", option, r.ranks, transport),
      fmt::format("measure them first: `kiln bench allreduce --ranks {} --transport {}`", r.ranks, transport),
      ErrorKind::unavailable);
}

}  // namespace kiln
