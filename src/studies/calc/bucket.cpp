#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "rows/row_outcome.h"
#include "studies/calc/calc.h"
#include "studies/calc/stored.h"
#include "studies/format.h"

namespace kiln {
namespace {

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

bool is_step(const Json& r, const BucketRequest& q) {
  const bool modelled = text_at(r, "link") == "modelled";
  return is_row_of(r, "bench ddp", q.place.transport, q.ranks) && text_at(r, "form") == "bucketed" &&
         close(number_at(r, "gradient_bytes"), q.bytes) && number_at(r, "bucket_mb") &&
         number_at(r, "p50_ms") && number_at(r, "compute_ms") && modelled == q.link.has_value() &&
         (!modelled || text_at(r, "link_model") == q.link->str());
}

// Steps are compared with those of the newest run alone: these must be the same in all of them.
constexpr const char* kDecides[] = {"device",      "size", "dtype",  "wire",    "batch",
                                    "micro_steps", "ctx",  "preset", "build_id"};

std::vector<Json> newest_run(const BucketRequest& q, StoredRows stored) {
  std::vector<Json> run;
  for (const Json& r : stored) {
    if (!is_step(r, q) || text_at(r, "device") != q.place.device) continue;
    const bool same =
        run.empty() || std::all_of(std::begin(kDecides), std::end(kDecides), [&](const char* key) {
          return text_at(r, key) == text_at(run.front(), key);
        });
    if (!same) run.clear();
    run.push_back(r);
  }
  return run;
}

std::optional<double> measured(const std::vector<Json>& run, double bucket, double all) {
  std::optional<double> found;
  for (const Json& r : run) {
    const double tried = 1e6 * *number_at(r, "bucket_mb");
    if (close(tried, bucket) || (bucket >= all && tried >= all))
      found = 1e-3 * (*number_at(r, "p50_ms") - *number_at(r, "compute_ms"));
  }
  return found;
}

std::string megabytes(double bytes) { return digits(bytes / 1e6); }

// A row with the report it is of.
struct Line {
  const BucketReport& report;
  const BucketRow& row;
};
using In = const Line&;

// A step in less than its compute takes: nothing but its place among the rows means something.
std::string achieved_text(const Json& row) {
  const auto x = number_at(row, "achieved_ms");
  return x ? digits(*x) + (*x < 0 ? " (noise)" : "") : "";
}

std::string bucket_text(const Json& row) {
  return digits(row.at("bucket_mb").get<double>()) + (row.at("best").get<bool>() ? " (best)" : "");
}

const Schema<Line>& schema() {
  static const Schema<Line> kSchema = {
      same_outcome_columns<Line, RowStatus::modelled>(),
      {"bucket_mb", "bucket MB", Unit::text, [](In l) { return Json(l.row.bucket / 1e6); }, Where::table, "",
       bucket_text},
      {"best", "", Unit::text, [](In l) { return Json(l.row.best); }},
      {"n", "buckets", Unit::number, [](In l) { return Json(l.row.n); }, Where::table},
      {"achieved_ms", "achieved ms", Unit::milliseconds,
       [](In l) { return l.row.achieved ? Json(ms(*l.row.achieved)) : Json(); }, Where::table, "",
       achieved_text},
      {"predicted_ms", "predicted ms", Unit::milliseconds, [](In l) { return Json(ms(l.row.predicted)); },
       Where::table},
      {"floor_ms", "floor ms", Unit::milliseconds, [](In l) { return Json(ms(l.report.best.overhead)); },
       Where::table},
  };
  return kSchema;
}

std::vector<std::string> notes_of(const BucketReport& report, bool latency) {
  const BucketRequest& q = report.request;
  const BestBucket& best = report.best;
  std::vector<std::string> notes = {
      "a step takes s / (n w) + n o besides its compute; least for n = sqrt(s / (w o)), buckets of "
      "sqrt(s w o)",
      fmt::format("best: {}; the step's sums are {}-bound",
                  best.bytes > 0 ? fmt::format("{} MB, {} of them", megabytes(best.bytes), digits(best.n))
                                 : "the smaller the better, since a call has no overhead",
                  latency ? "latency" : "bandwidth")};
  if (const BucketRow* fastest = report.fastest())
    notes.push_back(fmt::format(
        "achieved: steps of bench ddp ({}) in {} minus their compute; the fastest had buckets of {} MB",
        q.place.device, q.place.folder, megabytes(fastest->bucket)));
  else
    notes.push_back(fmt::format("achieved: {} has no step of bench ddp with these gradients, ranks and link",
                                q.place.folder));
  return notes;
}

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
  q.place.device = device_of_rows(stored, q.place, [&](const Json& r) {
    return q.cost || q.link ? is_step(r, q) : is_row_of(r, "bench allreduce", q.place.transport, q.ranks);
  });
  find_cost(report, stored);
  report.best = best_bucket(q.bytes, report.cost);
  std::vector<double> buckets;
  buckets.reserve(q.bucket_mb.size() + 1);
  for (const double mb : q.bucket_mb) buckets.push_back(std::min(1e6 * mb, q.bytes));
  if (report.best.bytes > 0) buckets.push_back(report.best.bytes);
  if (buckets.empty())
    throw Error("a call has no overhead, so there is no best bucket", "give some: --bucket-mb 1,10,100",
                ErrorKind::usage);
  std::sort(buckets.begin(), buckets.end());
  buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
  const std::vector<Json> run = newest_run(q, stored);
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

StudyPage bucket_page(const BucketReport& report, bool wide) {
  const BucketRequest& q = report.request;
  const bool latency = report.cost.latency_bound(q.bytes, report.best.n);
  StudyPage page;
  page.place = fmt::format("s = {} MB of gradients; a sum runs at w = {} GB/s and costs o = {} us a call, {}",
                           megabytes(q.bytes), digits(report.cost.w / 1e9), digits(1e6 * report.cost.o),
                           report.cost_from);
  page.columns = schema().forms();
  page.shown.wide = wide;
  for (const BucketRow& r : report.rows) page.rows.push_back(schema().row({report, r}));
  page.notes = notes_of(report, latency);
  page.json = {{"command", "calc bucket"},
               {"gradient_bytes", q.bytes},
               {"ranks", q.ranks},
               {"transport", q.place.transport},
               {"device", q.place.device},
               {"overhead_us", 1e6 * report.cost.o},
               {"gb_per_s", report.cost.w / 1e9},
               {"from", report.cost_from},
               {"best_mb", report.best.bytes / 1e6},
               {"best_n", report.best.bytes > 0 ? Json(report.best.n) : Json()},
               {"bound", latency ? "latency" : "bandwidth"},
               {"rows", page.rows}};
  if (const BucketRow* fastest = report.fastest()) page.json["measured_mb"] = fastest->bucket / 1e6;
  return page;
}

}  // namespace kiln
