#include <fmt/format.h>

#include <algorithm>

#include "studies/calc/derivation.h"
#include "studies/calibrate/calibrate.h"
#include "studies/format.h"

namespace kiln {
namespace {

// Calls of a kind, as shares of their roofline. Over 1: they fit into the cache.
struct CurveRow {
  CurveKey key;
  int shapes = 0;
  double least = 0, median = 0, most = 0;
};

CurveRow row_of(const CallCurve& curve, const Rates& rates) {
  std::vector<double> shares;
  for (const CalibratedCall& call : curve.calls)
    shares.push_back(std::max(call.shape.flops / rates.flops, call.shape.bytes / rates.bytes) / call.seconds);
  CurveRow row{curve.key, static_cast<int>(shares.size())};
  row.median = summarize(shares).p50;
  const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
  row.least = *least, row.most = *most;
  return row;
}

template <auto kMember>
Json of_key(const CurveRow& r) {
  return Json(r.key.*kMember);
}

const Schema<CurveRow>& schema() {
  using R = CurveRow;
  static const Schema<R> kSchema = {
      {"op", "op", Unit::text, of_key<&CurveKey::op>, Where::table},
      {"variant", "variant", Unit::text, of_key<&CurveKey::variant>, Where::table},
      {"pass", "pass", Unit::text, of_key<&CurveKey::pass>, Where::table},
      {"compute", "compute", Unit::text, of_key<&CurveKey::compute>, Where::table},
      {"dtype", "writes", Unit::text, of_key<&CurveKey::dtype>, Where::wide},
      {"shapes", "shapes", Unit::count, field<&R::shapes>, Where::table},
      {"of_roofline", "of roofline", Unit::percent, field<&R::median>, Where::table},
      {"least_of_roofline", "least", Unit::percent, field<&R::least>, Where::table},
      {"most_of_roofline", "most", Unit::percent, field<&R::most>, Where::table},
  };
  return kSchema;
}

std::vector<std::string> notes_of(const CalibrateReport& report) {
  const Calibration& c = *report.hardware.calibration;
  std::vector<std::string> notes;
  notes.push_back(fmt::format(
      "Between two calls of a step {}, and {} once a step{}.", with_unit(c.dispatch, "s"),
      with_unit(c.step, "s"),
      c.graph_gap > 0 ? fmt::format("; between two kernels of a graph {}", with_unit(c.graph_gap, "s"))
                      : ""));
  for (const CalibratedLink& l : c.links)
    notes.push_back(fmt::format("Among {} ranks over {}: {} a collective, {}.", l.ranks, l.transport,
                                with_unit(l.latency, "s"), with_unit(l.bytes_per_s, "B/s")));
  if (c.clock_hz > 0) notes.push_back(fmt::format("Clock under load: {}.", with_unit(c.clock_hz, "Hz")));
  notes.push_back(fmt::format("The same step varies by {:.1f} % (standard deviation, median of all models).",
                              100 * c.spread));
  notes.push_back(
      fmt::format("Each model's step predicted from the calls of the others: off by {:.1f} % in the median, "
                  "{:.1f} % at worst "
                  "({} steps).",
                  100 * report.own.median, 100 * report.own.worst, report.own.steps));
  if (!report.drift.steady())
    notes.push_back(
        fmt::format("The machine changed its speed: the same steps took {:.2f} to {:.2f} times as long in "
                    "the second round as in the first, and no prediction will be better than that.",
                    report.drift.least, report.drift.most));
  if (report.skipped > 0)
    notes.push_back(
        fmt::format("{} of the design's steps were left out, for want of time or memory; --seconds gives "
                    "more time.",
                    report.skipped));
  if (!report.path.empty())
    notes.push_back(fmt::format("Kept in {}; commands with the same --out predict with it.", report.path));
  return notes;
}

}  // namespace

StudyPage calibrate_page(const CalibrateReport& report, bool wide) {
  const Hardware& h = report.hardware;
  StudyPage page;
  page.place = fmt::format("{}: copy {}", h.title, with_unit(h.bytes_per_s, "B/s"));
  for (const auto& [dtype, rate] : h.flops)
    page.place += fmt::format(", {} {}", dtype, with_unit(rate, "FLOP/s"));
  page.columns = schema().forms();
  page.shown.wide = wide;
  for (const CallCurve& curve : h.calibration->curves) {
    const Rates rates{h.flops_of(curve.key.compute), h.copy_rate()};
    page.rows.push_back(schema().row(row_of(curve, rates)));
  }
  page.notes = notes_of(report);
  add_load_note(report, page.notes);
  const Calibration& c = *h.calibration;
  page.json = {{"command", "doctor --calibrate"},
               {"build_id", own_build()},
               {"device_name", h.device},
               {"file", report.path},
               {"seconds", report.seconds},
               {"steps", report.steps},
               {"skipped", report.skipped},
               {"calls", c.calls()},
               {"dispatch_s", c.dispatch},
               {"graph_gap_s", c.graph_gap},
               {"step_s", c.step},
               {"spread", c.spread},
               {"clock_hz", c.clock_hz},
               {"drift_least", report.drift.least},
               {"drift_most", report.drift.most},
               {"own_error_median", report.own.median},
               {"own_error_worst", report.own.worst},
               {"load", load_json(report.load)},
               {"rows", page.rows}};
  return page;
}

}  // namespace kiln
