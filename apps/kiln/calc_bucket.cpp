#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kiln/bench_format.h"
#include "kiln/calc.h"
#include "kiln/calc_rows.h"
#include "kiln/study_tables.h"

namespace kiln::cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

void find_cost(BucketReport& report, StoredRows stored) {
  const BucketRequest& q = report.request;
  if (q.cost) {
    report.cost = *q.cost;
    report.cost_from = "as given";
  } else if (q.link) {
    report.cost = sum_cost(*q.link, q.ranks);
    report.cost_from = fmt::format("a ring of {} ranks on the link given", q.ranks);
  } else if (const auto fit = stored_link(stored, q.place.transport, q.place.device, q.ranks)) {
    report.cost = sum_cost(*fit);
    report.cost_from = fmt::format("fitted to rows of bench allreduce ({} ranks, {}, {}) in {}", q.ranks,
                                   q.place.transport, q.place.device, q.place.folder);
  } else {
    throw Error(
        fmt::format("nothing is known of sums between {} ranks on {}", q.ranks, q.place.transport),
        fmt::format(
            "give --w and --o, or --link; or measure: `kiln bench allreduce --ranks {} --transport {} "
            "--out {}`",
            q.ranks, q.place.transport, q.place.folder),
        ErrorKind::unavailable);
  }
}

// What a bucket cost in the newest run of `bench ddp` with these gradients, ranks and link.
std::optional<double> measured(const BucketRequest& q, StoredRows stored, double bucket) {
  constexpr double kClose = 0.01;  // of sizes, which are written to a few digits
  std::optional<double> found;
  for (const json& r : stored) {
    if (r.value("command", "") != "bench ddp" || r.value("form", "") != "bucketed" ||
        r.value("gate", "") != "passed" || r.value("transport", "") != q.place.transport ||
        r.value("device", "") != q.place.device || r.value("ranks", 0) != q.ranks ||
        !r.contains("compute_ms"))
      continue;
    if (r.value("link", "") == "modelled" ? !q.link || r.value("link_model", "") != q.link->str()
                                          : q.link.has_value())
      continue;
    if (std::abs(r.value("gradient_bytes", 0.0) / q.bytes - 1) > kClose ||
        std::abs(r.value("bucket_mb", 0.0) * 1e6 / bucket - 1) > kClose)
      continue;
    found = 1e-3 * (r["p50_ms"].get<double>() - r["compute_ms"].get<double>());
  }
  return found;
}

std::string megabytes(double bytes) { return digits(bytes / 1e6); }

}  // namespace

const BucketRow* BucketReport::fastest() const {
  const BucketRow* best = nullptr;
  for (const BucketRow& r : rows) {
    if (r.achieved && (best == nullptr || *r.achieved < *best->achieved)) best = &r;
  }
  return best;
}

BucketReport calc_bucket(const BucketRequest& q, StoredRows stored) {
  BucketReport report;
  report.request = q;
  report.request.place.device = device_of_rows(stored, q.place, "bench ddp");
  find_cost(report, stored);
  report.best = best_bucket(q.bytes, report.cost);
  const auto add = [&](double bucket, bool best) {
    BucketRow row;
    row.bucket = std::min(bucket, q.bytes);  // one bucket holds all
    row.best = best;
    row.n = q.bytes / row.bucket;
    row.predicted = bucket_overhead(q.bytes, row.n, report.cost);
    row.achieved = measured(report.request, stored, bucket);
    report.rows.push_back(row);
  };
  for (const double mb : q.bucket_mb) add(mb * 1e6, false);
  if (report.best.bytes > 0) add(report.best.bytes, true);
  std::sort(report.rows.begin(), report.rows.end(),
            [](const BucketRow& a, const BucketRow& b) { return a.bucket < b.bucket; });
  return report;
}

std::string bucket_page(const BucketReport& report, PageFormat format) {
  const BucketRequest& q = report.request;
  const BucketRow* fastest = report.fastest();
  const bool latency = report.cost.latency_bound(q.bytes, report.best.n);
  if (format == PageFormat::json) {
    ordered_json rows = ordered_json::array();
    for (const BucketRow& r : report.rows) {
      ordered_json row = {{"bucket_mb", r.bucket / 1e6},
                          {"best", r.best},
                          {"n", r.n},
                          {"predicted_ms", ms(r.predicted)},
                          {"floor_ms", ms(report.best.overhead)}};
      if (r.achieved) row["achieved_ms"] = ms(*r.achieved);
      rows.push_back(std::move(row));
    }
    ordered_json page = {{"command", "calc bucket"},
                         {"gradient_bytes", q.bytes},
                         {"ranks", q.ranks},
                         {"transport", q.place.transport},
                         {"device", q.place.device},
                         {"overhead_us", 1e6 * report.cost.o},
                         {"gb_per_s", report.cost.w / 1e9},
                         {"from", report.cost_from},
                         {"best_mb", report.best.bytes / 1e6},
                         {"best_n", report.best.n},
                         {"bound", latency ? "latency" : "bandwidth"},
                         {"rows", rows}};
    if (fastest != nullptr) page["measured_mb"] = fastest->bucket / 1e6;
    return dump(page, 2) + "\n";
  }
  TextTable table = {{"bucket MB", "buckets", "achieved ms", "predicted ms", "floor ms"}};
  for (const BucketRow& r : report.rows)
    table.push_back({megabytes(r.bucket) + (r.best ? " (best)" : ""), digits(r.n),
                     r.achieved ? digits(ms(*r.achieved)) : "-", digits(ms(r.predicted)),
                     digits(ms(report.best.overhead))});
  if (format == PageFormat::csv) return written(table, 1, format);
  std::string text =
      remark(fmt::format("s = {} MB of gradients; a sum goes at w = {} GB/s and costs o = {} us a call, {}.",
                         megabytes(q.bytes), digits(report.cost.w / 1e9), digits(1e6 * report.cost.o),
                         report.cost_from),
             format);
  text += remark(
      "beside its compute a step takes s / (n w) + n o, least for n = sqrt(s / (w o)) buckets of sqrt(s w "
      "o):",
      format);
  text += written(table, 1, format);
  text += remark(
      fmt::format("best: {} MB, {} of them; the step's sums are {}-bound.", megabytes(report.best.bytes),
                  digits(report.best.n), latency ? "latency" : "bandwidth"),
      format);
  if (fastest != nullptr)
    text +=
        remark(fmt::format(
                   "achieved: steps of bench ddp in {} less their compute; the fastest had buckets of {} MB.",
                   q.place.folder, megabytes(fastest->bucket)),
               format);
  else
    text +=
        remark(fmt::format("no steps of bench ddp with these gradients and ranks are in {}: `kiln bench ddp "
                           "--bucket-mb 1,10,100,1000,auto` measures them.",
                           q.place.folder),
               format);
  return text;
}

}  // namespace kiln::cli
