#include "train/run/known_link.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "perf/comm/bucket_size.h"
#include "perf/model/machine.h"
#include "rows/result_log.h"

namespace kiln {

namespace {

std::string transport_of(const TrainRequest& r) { return r.transport == "auto" ? "threads" : r.transport; }

// Of the calibration: the same transport, the nearest number of ranks.
std::optional<KnownLink> calibrated_link(const TrainRequest& r) {
  const KnownMachine known = known_machine(r.results, machine_of(r.device, 0));
  if (!known.hardware || !known.hardware->calibration) return std::nullopt;
  const CalibratedLink* best = nullptr;
  for (const CalibratedLink& l : known.hardware->calibration->links) {
    if (l.transport != transport_of(r)) continue;
    if (best == nullptr || std::abs(l.ranks - r.ranks) < std::abs(best->ranks - r.ranks)) best = &l;
  }
  if (best == nullptr) return std::nullopt;
  const LinkFit fit{.alpha = best->latency, .beta = 1 / best->bytes_per_s};
  return KnownLink{LinkModel{fit.step_latency(best->ranks), fit.bus_bandwidth(best->ranks)},
                   {},
                   fmt::format("the calibrated link of {} ranks", best->ranks)};
}

}  // namespace

std::string results_folder(const TrainRequest& r, const std::string& out) {
  const std::string file = hardware_file_name(machine_of(r.device, 0));
  const std::filesystem::path beside = std::filesystem::path(r.run).parent_path();
  const bool there = std::filesystem::exists(std::filesystem::path(out) / file);
  return !there && std::filesystem::exists(beside / file) ? beside.string() : out;
}

// Rows are in the folder of results, or next to the run, where `bench allreduce` with the default --out
// leaves them.
std::optional<KnownLink> find_link(const TrainRequest& r) {
  if (!r.link.empty()) return KnownLink{LinkModel::parse(r.link, "--link"), {}, "the modelled link"};
  for (const std::string& folder : {r.results, std::filesystem::path(r.run).parent_path().string()}) {
    if (folder.empty()) continue;
    if (const auto fit = stored_link(read_results(folder).rows, transport_of(r), r.device.str(), r.ranks))
      return KnownLink{std::nullopt, *fit, fmt::format("rows of bench allreduce in {}", folder)};
  }
  return calibrated_link(r);
}

KnownLink known_link(const TrainRequest& r, const std::string& option) {
  if (std::optional<KnownLink> link = find_link(r)) return std::move(*link);
  throw Error(
      fmt::format("{} is 'auto', and nothing is known of {} ranks on {}", option, r.ranks, transport_of(r)),
      fmt::format("measure them first: `kiln bench allreduce --ranks {} --transport {}`", r.ranks,
                  transport_of(r)),
      ErrorKind::unavailable);
}

LinkModel link_of_a_rank(const KnownLink& link, int ranks) {
  if (link.model) return *link.model;
  const double bandwidth = link.fit.bus_bandwidth(ranks);
  return {link.fit.step_latency(ranks), bandwidth > 0 ? bandwidth : 1e15};
}

CallSeconds seconds_between(const KnownLink& link, int ranks) {
  return seconds_on(link_of_a_rank(link, ranks), ranks);
}

}  // namespace kiln
