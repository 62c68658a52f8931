#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "rows/row_outcome.h"
#include "studies/calc/calc.h"
#include "studies/calc/stored.h"
#include "studies/format.h"

namespace kiln {
namespace {

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
  // S is the total of all ranks' bytes: of a gather each brings its part.
  call.count = static_cast<int64_t>(way.what == Collective::all_gather ? bytes / ranks : bytes);
  return link_seconds(link, way.algorithm, call, ranks);
}

bool is_ring_row(const Json& r, const CalcPlace& place, int ranks, std::string_view algorithm) {
  return is_row_of(r, "bench allreduce", place.transport, ranks) && text_at(r, "algorithm") == algorithm &&
         text_at(r, "dtype") == "fp32" && number_at(r, "p50_ms") && number_at(r, "bytes");
}

bool is_ring_row_here(const Json& r, const CalcPlace& place, int ranks, std::string_view algorithm) {
  return text_at(r, "device") == place.device && is_ring_row(r, place, ranks, algorithm);
}

LinkModel fitted(const CalcPlace& place, StoredRows stored, int ranks) {
  std::vector<Point> points;
  for (const Json& r : stored) {
    if (is_ring_row_here(r, place, ranks, "ring"))
      points.push_back({*number_at(r, "bytes"), 1e-3 * *number_at(r, "p50_ms")});
  }
  const auto fit = fit_link(points);
  if (!fit || fit->bus_bandwidth(ranks) <= 0)
    throw Error(
        fmt::format("nothing is known of a ring of {} ranks on {} ({}): {} has no two sizes of it", ranks,
                    place.transport, place.device, place.folder),
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
  for (const Json& r : stored) {
    if (is_ring_row_here(r, q.place, ranks, way.stored) && number_at(r, "bytes") == bytes)
      found = 1e-3 * *number_at(r, "p50_ms");
  }
  return found;
}

// Of bytes under `key`, in MB as links are counted.
template <const char* kKey>
std::string megabytes(const Json& row) {
  return digits(row.at(kKey).get<double>() / 1e6);
}
constexpr char kBytes[] = "bytes", kSent[] = "sent_bytes";

const Schema<RingRow>& schema() {
  using Row = RingRow;
  static const Schema<Row> kSchema = {
      same_outcome_columns<Row, RowStatus::modelled>(),
      {"collective", "collective", Unit::text, [](const Row& r) { return Json(r.collective); }, Where::table},
      {"formula", "takes", Unit::text, [](const Row& r) { return Json(r.formula); }, Where::table},
      {"ranks", "ranks", Unit::count, [](const Row& r) { return Json(r.ranks); }, Where::table},
      {kBytes, "S MB", Unit::number, [](const Row& r) { return Json(static_cast<int64_t>(r.bytes)); },
       Where::table, "", megabytes<kBytes>},
      {kSent, "sent MB", Unit::number, [](const Row& r) { return Json(r.sent); }, Where::table, "",
       megabytes<kSent>},
      {"achieved_ms", "achieved ms", Unit::milliseconds,
       [](const Row& r) { return r.achieved ? Json(ms(*r.achieved)) : Json(); }, Where::table},
      {"predicted_ms", "predicted ms", Unit::milliseconds, [](const Row& r) { return Json(ms(r.predicted)); },
       Where::table},
      {"floor_ms", "floor ms", Unit::milliseconds, [](const Row& r) { return Json(ms(r.floor)); },
       Where::table},
      {.key = "",
       .title = "predicted / achieved",
       .unit = Unit::number,
       .where = Where::table,
       .text =
           [](const Json& row) {
             const auto achieved = number_at(row, "achieved_ms");
             return achieved ? fmt::format("{:.2f}", *number_at(row, "predicted_ms") / *achieved) : "";
           }},
  };
  return kSchema;
}

}  // namespace

RingReport calc_ring(const RingRequest& request, StoredRows stored) {
  RingReport report;
  report.request = request;
  RingRequest& q = report.request;
  q.place.device = device_of_rows(stored, q.place, [&](const Json& r) {
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

StudyPage ring_page(const RingReport& report, bool wide) {
  const RingRequest& q = report.request;
  StudyPage page;
  page.place =
      "S bytes, N ranks, latency L and bandwidth W of a rank's link to the next; sent: bytes of each rank; "
      "floor: the fewest bytes possible, without latency";
  page.columns = schema().forms();
  page.shown.wide = wide;
  for (const RingRow& r : report.rows) page.rows.push_back(schema().row(r));
  Json links = Json::array();
  const std::string from = q.link ? "as given"
                                  : fmt::format("fitted to rows of all_reduce ({}, {}) in {}",
                                                q.place.transport, q.place.device, q.place.folder);
  for (const auto& [ranks, link] : report.links) {
    links.push_back(
        {{"ranks", ranks}, {"latency_us", 1e6 * link.latency}, {"gb_per_s", link.bandwidth / 1e9}});
    page.notes.push_back(fmt::format("{} ranks: L = {} us, W = {} GB/s, {}", ranks,
                                     digits(1e6 * link.latency), digits(link.bandwidth / 1e9), from));
  }
  page.json = {{"command", "calc ring"},   {"transport", q.place.transport},
               {"device", q.place.device}, {"link", q.link ? "given" : "fitted"},
               {"links", links},           {"rows", page.rows}};
  return page;
}

}  // namespace kiln
