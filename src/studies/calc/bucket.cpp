#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "studies/format.h"
#include "studies/calc/calc.h"
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
    throw Error(fmt::format("nothing is known of sums between {} ranks on {} ({})", q.ranks,
                            q.place.transport, q.place.device),
                fmt::format("give --w and --o, or --link; or measure: `kiln bench allreduce --ranks {} "
                            "--transport {} --device {} "
                            "--out {}`",
                            q.ranks, q.place.transport, q.place.device, q.place.folder),
                ErrorKind::unavailable);
  }
}

bool close(std::optional<double> a, double b) {  // sizes are written to a few digits
  return a && std::abs(*a / b - 1) <= 0.01;
}

bool is_step(const json& r, const BucketRequest& q) {
  const bool modelled = word_at(r, "link") == "modelled";
  return is_row_of(r, "bench ddp", q.place.transport, q.ranks) && word_at(r, "form") == "bucketed" &&
         close(number_at(r, "gradient_bytes"), q.bytes) && number_at(r, "bucket_mb") &&
         number_at(r, "p50_ms") && number_at(r, "compute_ms") && modelled == q.link.has_value() &&
         (!modelled || word_at(r, "link_model") == q.link->str());
}

// Steps are compared with those of the newest run alone: these must be the same in all of them.
constexpr const char* kDecides[] = {"device", "size", "dtype", "wire", "batch", "ctx", "preset", "build_id"};

std::vector<json> newest_run(const BucketRequest& q, StoredRows stored) {
  std::vector<json> run;
  for (const json& r : stored) {
    if (!is_step(r, q) || word_at(r, "device") != q.place.device) continue;
    const bool same =
        run.empty() || std::all_of(std::begin(kDecides), std::end(kDecides), [&](const char* key) {
          return word_at(r, key) == word_at(run.front(), key);
        });
    if (!same) run.clear();
    run.push_back(r);
  }
  return run;
}

std::optional<double> measured(const std::vector<json>& run, double bucket, double all) {
  std::optional<double> found;
  for (const json& r : run) {
    const double tried = 1e6 * *number_at(r, "bucket_mb");
    if (close(tried, bucket) || (bucket >= all && tried >= all))
      found = 1e-3 * (*number_at(r, "p50_ms") - *number_at(r, "compute_ms"));
  }
  return found;
}

// A step in less than its compute takes: nothing but its place among the rows means something.
std::string achieved(const BucketRow& r) {
  if (!r.achieved) return "-";
  return digits(ms(*r.achieved)) + (*r.achieved < 0 ? " (noise)" : "");
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

BucketReport calc_bucket(const BucketRequest& request, StoredRows stored) {
  BucketReport report;
  report.request = request;
  BucketRequest& q = report.request;
  q.place.device = device_of_rows(stored, q.place, [&](const json& r) {
    return q.cost || q.link ? is_step(r, q) : is_row_of(r, "bench allreduce", q.place.transport, q.ranks);
  });
  find_cost(report, stored);
  report.best = best_bucket(q.bytes, report.cost);
  std::vector<double> buckets;
  buckets.reserve(q.bucket_mb.size() + 1);
  for (const double mb : q.bucket_mb) buckets.push_back(std::min(1e6 * mb, q.bytes));
  if (report.best.bytes > 0) buckets.push_back(report.best.bytes);
  if (buckets.empty())
    throw Error("a call costs nothing, so there is no best bucket", "name some: --bucket-mb 1,10,100",
                ErrorKind::usage);
  std::sort(buckets.begin(), buckets.end());
  buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
  const std::vector<json> run = newest_run(q, stored);
  for (const double bucket : buckets) {
    BucketRow row;
    row.bucket = bucket;
    row.best = bucket == report.best.bytes;
    row.n = q.bytes / bucket;
    row.predicted = bucket_overhead(q.bytes, row.n, report.cost);
    row.achieved = measured(run, bucket, q.bytes);
    report.rows.push_back(row);
  }
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
                         {"best_n", report.best.bytes > 0 ? ordered_json(report.best.n) : ordered_json()},
                         {"bound", latency ? "latency" : "bandwidth"},
                         {"rows", rows}};
    if (fastest != nullptr) page["measured_mb"] = fastest->bucket / 1e6;
    return dump(page, 2) + "\n";
  }
  TextTable table = {{"bucket MB", "buckets", "achieved ms", "predicted ms", "floor ms"}};
  for (const BucketRow& r : report.rows)
    table.push_back({megabytes(r.bucket) + (r.best ? " (best)" : ""), digits(r.n), achieved(r),
                     digits(ms(r.predicted)), digits(ms(report.best.overhead))});
  if (format == PageFormat::csv) return written(table, 1, format);
  std::string text =
      remark(fmt::format("s = {} MB of gradients; a sum goes at w = {} GB/s and costs o = {} us a call, {}",
                         megabytes(q.bytes), digits(report.cost.w / 1e9), digits(1e6 * report.cost.o),
                         report.cost_from),
             format);
  text += heading(
      "a step takes s / (n w) + n o beside its compute, least for n = sqrt(s / (w o)) buckets of sqrt(s w o)",
      format);
  text += written(table, 1, format);
  text += remark(
      fmt::format("best: {}; the step's sums are {}-bound",
                  report.best.bytes > 0
                      ? fmt::format("{} MB, {} of them", megabytes(report.best.bytes), digits(report.best.n))
                      : "the smaller the better, since a call costs nothing",
                  latency ? "latency" : "bandwidth"),
      format);
  if (fastest != nullptr)
    text += remark(
        fmt::format(
            "achieved: steps of bench ddp ({}) in {} less their compute; the fastest had buckets of {} MB",
            q.place.device, q.place.folder, megabytes(fastest->bucket)),
        format);
  else
    text += remark(fmt::format("achieved: {} has no step of bench ddp with these gradients, ranks and link",
                               q.place.folder),
                   format);
  return text;
}

}  // namespace kiln::cli
