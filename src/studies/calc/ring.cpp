#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "studies/format.h"
#include "studies/calc/calc.h"
#include "kiln/calc_rows.h"
#include "kiln/study_tables.h"

namespace kiln::cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

struct Way {
  const char* name;
  const char* formula;
  Collective what;
  CommAlgorithm algorithm;
  const char* stored;  // the algorithm of rows of `bench allreduce`; null: none time it
};

constexpr Way kWays[] = {
    {"all_gather", "(N-1) L + (N-1)/N S/W", Collective::all_gather, CommAlgorithm::ring, nullptr},
    {"reduce_scatter", "(N-1) L + (N-1)/N S/W", Collective::reduce_scatter, CommAlgorithm::ring, nullptr},
    {"all_reduce", "2(N-1) L + 2(N-1)/N S/W", Collective::all_reduce, CommAlgorithm::ring, "ring"},
    {"alternate", "(N-1) L + (N-1) S/W", Collective::all_reduce, CommAlgorithm::alternate, "alternate"},
};

double seconds(const Way& way, const LinkModel& link, double bytes, int ranks) {
  CommCall call;
  call.what = way.what;
  call.dtype = DType::u8;
  // All ranks' bytes together are S: of a gather each brings its part.
  call.count = static_cast<int64_t>(way.what == Collective::all_gather ? bytes / ranks : bytes);
  return link_seconds(link, way.algorithm, call, ranks);
}

bool is_ring_row(const json& r, const CalcPlace& place, int ranks, std::string_view algorithm) {
  return is_row_of(r, "bench allreduce", place.transport, ranks) && word_at(r, "algorithm") == algorithm &&
         word_at(r, "dtype") == "fp32" && number_at(r, "p50_ms") && number_at(r, "bytes");
}

bool is_ring_row_here(const json& r, const CalcPlace& place, int ranks, std::string_view algorithm) {
  return word_at(r, "device") == place.device && is_ring_row(r, place, ranks, algorithm);
}

LinkModel fitted(const CalcPlace& place, StoredRows stored, int ranks) {
  std::vector<Point> points;
  for (const json& r : stored) {
    if (is_ring_row_here(r, place, ranks, "ring"))
      points.push_back({*number_at(r, "bytes"), 1e-3 * *number_at(r, "p50_ms")});
  }
  const auto fit = fit_link(points);
  if (!fit || fit->bus_bandwidth(ranks) <= 0)
    throw Error(
        fmt::format("nothing is known of a ring of {} ranks on {} ({}): {} has no two sizes of it that tell",
                    ranks, place.transport, place.device, place.folder),
        fmt::format("give --link latency=20us,bandwidth=10GB/s, or measure: `kiln bench allreduce --ranks {} "
                    "--transport {} --device {} --algorithm ring,alternate --out {}`",
                    ranks, place.transport, place.device, place.folder),
        ErrorKind::unavailable);
  return {fit->step_latency(ranks), fit->bus_bandwidth(ranks)};
}

std::optional<double> newest(const RingRequest& q, StoredRows stored, int ranks, const Way& way,
                             double bytes) {
  if (q.link || way.stored == nullptr) return std::nullopt;  // of another link than these rows'
  std::optional<double> found;
  for (const json& r : stored) {
    if (is_ring_row_here(r, q.place, ranks, way.stored) && number_at(r, "bytes") == bytes)
      found = 1e-3 * *number_at(r, "p50_ms");
  }
  return found;
}

}  // namespace

RingReport calc_ring(const RingRequest& request, StoredRows stored) {
  RingReport report;
  report.request = request;
  RingRequest& q = report.request;
  q.place.device = device_of_rows(stored, q.place, [&](const json& r) {
    return std::any_of(q.ranks.begin(), q.ranks.end(),
                       [&](int ranks) { return is_ring_row(r, q.place, ranks, "ring"); });
  });
  for (const int ranks : q.ranks) {
    const LinkModel link = q.link ? *q.link : fitted(q.place, stored, ranks);
    report.links.emplace_back(ranks, link);
    const double n = ranks;
    for (const Bytes size : q.sizes) {
      const auto bytes = static_cast<double>(size.value);
      for (const Way& way : kWays) {
        RingRow row;
        row.collective = way.name;
        row.formula = way.formula;
        row.ranks = ranks;
        row.bytes = bytes;
        const double least = (way.what == Collective::all_reduce ? 2 : 1) * (n - 1) / n * bytes;
        row.sent = way.algorithm == CommAlgorithm::alternate ? (n - 1) * bytes : least;
        row.predicted = seconds(way, link, bytes, ranks);
        row.floor = least / link.bandwidth;
        row.achieved = newest(q, stored, ranks, way, bytes);
        report.rows.push_back(std::move(row));
      }
    }
  }
  return report;
}

std::string ring_page(const RingReport& report, PageFormat format) {
  if (format == PageFormat::json) {
    ordered_json rows = ordered_json::array(), links = ordered_json::array();
    for (const auto& [ranks, link] : report.links)
      links.push_back(
          {{"ranks", ranks}, {"latency_us", 1e6 * link.latency}, {"gb_per_s", link.bandwidth / 1e9}});
    for (const RingRow& r : report.rows) {
      ordered_json row = {{"collective", r.collective}, {"formula", r.formula},
                          {"ranks", r.ranks},           {"bytes", r.bytes},
                          {"sent_bytes", r.sent},       {"predicted_ms", ms(r.predicted)},
                          {"floor_ms", ms(r.floor)}};
      if (r.achieved) row["achieved_ms"] = ms(*r.achieved);
      rows.push_back(std::move(row));
    }
    return dump({{"command", "calc ring"},
                 {"transport", report.request.place.transport},
                 {"device", report.request.place.device},
                 {"link", report.request.link ? "given" : "fitted"},
                 {"links", links},
                 {"rows", rows}},
                2) +
           "\n";
  }
  TextTable table = {{"collective", "takes", "ranks", "S MB", "sent MB", "achieved ms", "predicted ms",
                      "floor ms", "predicted / achieved"}};
  for (const RingRow& r : report.rows) {
    table.push_back({r.collective, r.formula, fmt::format("{}", r.ranks), digits(r.bytes / 1e6),
                     digits(r.sent / 1e6), r.achieved ? digits(ms(*r.achieved)) : "-",
                     digits(ms(r.predicted)), digits(ms(r.floor)),
                     r.achieved ? fmt::format("{:.2f}", r.predicted / *r.achieved) : "-"});
  }
  if (format == PageFormat::csv) return written(table, 2, format);
  std::string text =
      remark(
          "S bytes, N ranks, latency L and bandwidth W of a rank's link to the next; sent: by each rank; "
          "floor: the fewest bytes that do it, and no latency",
          format) +
      written(table, 2, format);
  for (const auto& [ranks, link] : report.links)
    text += remark(fmt::format("{} ranks: L = {} us, W = {} GB/s, {}", ranks, digits(1e6 * link.latency),
                               digits(link.bandwidth / 1e9),
                               report.request.link
                                   ? "as given"
                                   : fmt::format("fitted to rows of all_reduce ({}, {}) in {}",
                                                 report.request.place.transport, report.request.place.device,
                                                 report.request.place.folder)),
                   format);
  return text;
}

}  // namespace kiln::cli
