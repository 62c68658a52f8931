// The pages of `kiln memory scaling` and `kiln memory recompute-sweep`.
#include <fmt/format.h>

#include <algorithm>

#include "report/charts/line_chart.h"
#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/format.h"
#include "studies/memory/render.h"

namespace kiln {
namespace {

constexpr Where kTable = Where::table;

std::string spec_text(const StepSpec& s) {
  return fmt::format("{}, {}, batch {}", name_of(s.mode), name_of(s.precision), s.step.batch);
}

Json measured_peak(const std::optional<MemoryStats>& m) { return m ? Json(m->peak_total) : Json(); }

// Of a point of either sweep.
template <class Point>
RowOutcome outcome_of(const Point& p) {
  if (!p.measured) return {.status = RowStatus::modelled};
  const bool same = p.measured->peak_total == p.predicted.peak_total;
  return {.gate = same ? Gate::passed : Gate::not_verified};
}

struct ScalingLine {
  const ScalingReport& report;
  const ScalingSeries& series;
  const ScalingPoint& of;
};

std::string scores_of_peak(const Json& row) {
  return fmt::format("{:.1f} %", 100 * ratio_of(row, "score_bytes_at_peak", "predicted_peak_bytes"));
}

const Schema<ScalingLine>& scaling_schema() {
  using L = ScalingLine;
  constexpr Unit kMiB = Unit::mebibytes;
  static const Schema<L> kSchema = {
      outcome_columns<L>([](const L& l) { return outcome_json(outcome_of(l.of)); }, stored_outcome_forms()),
      {"attention", "attention", Unit::text, [](const L& l) { return Json(l.series.attention); }, kTable},
      {"ctx", "ctx", Unit::count, [](const L& l) { return Json(l.of.context); }, kTable},
      {"predicted_peak_bytes", "predicted MiB", kMiB,
       [](const L& l) { return Json(l.of.predicted.peak_total); }, kTable},
      or_null<L>({"measured_peak_bytes", "measured", kMiB,
                  [](const L& l) { return measured_peak(l.of.measured); }, kTable}),
      {"floor_bytes", "floor", kMiB, [](const L& l) { return Json(floor_bytes(l.report.request.spec)); },
       kTable},
      {"activation_bytes", "activations", kMiB, [](const L& l) { return Json(l.of.activations); }, kTable},
      {"score_bytes_at_peak", "scores", kMiB, [](const L& l) { return Json(l.of.scores); }, kTable},
      {"", "of the peak", Unit::share, nullptr, kTable, "", scores_of_peak},
  };
  return kSchema;
}

struct SweepLine {
  const RecomputeSweep& sweep;
  const SweepPoint& of;

  const SweepPoint& none() const { return sweep.points.front(); }
  bool best() const { return sweep.best != 0 && &of == &sweep.points[sweep.best]; }
  Json more_time() const {
    return of.seconds > 0 && none().seconds > 0 ? Json(of.seconds / none().seconds - 1) : Json();
  }
  Json price() const {
    return of.measured && none().measured ? Json(of.timing.p50 / none().timing.p50) : Json();
  }
};

std::string recompute_text(const Json& row) {
  return text_at(row, "recompute") + (row.at("best").get<bool>() ? " (best of one level)" : "");
}

std::string off_text(const Json& row) {
  const double ratio = ratio_of(row, "formula_peak_bytes", "predicted_peak_bytes");
  return ratio == 0 ? "-" : fmt::format("{:+.1f} %", 100 * (ratio - 1));
}

const Schema<SweepLine>& sweep_schema() {
  using L = SweepLine;
  constexpr Unit kMiB = Unit::mebibytes;
  static const Schema<L> kSchema = {
      outcome_columns<L>([](const L& l) { return outcome_json(outcome_of(l.of)); }, stored_outcome_forms()),
      {"recompute", "recompute", Unit::text, [](const L& l) { return Json(name_of(l.of.recompute)); }, kTable,
       "", recompute_text},
      or_null<L>({"k", "", Unit::count,
                  [](const L& l) {
                    return l.of.recompute.kind == Recompute::Kind::every ? Json(l.of.recompute.k) : Json();
                  }}),
      {"best", "", Unit::text, field<&L::best>},
      {"predicted_peak_bytes", "predicted MiB", kMiB,
       [](const L& l) { return Json(l.of.predicted.peak_total); }, kTable},
      {"predicted_activation_bytes", "", kMiB,
       [](const L& l) { return Json(l.of.predicted.peak[Tag::activation]); }},
      or_null<L>({"measured_peak_bytes", "measured", kMiB,
                  [](const L& l) { return measured_peak(l.of.measured); }, kTable}),
      or_null<L>({"formula_peak_bytes", "by formula", kMiB,
                  [](const L& l) { return l.of.formula == 0 ? Json() : Json(l.of.formula); }, kTable}),
      {"", "off by", Unit::share, nullptr, kTable, "", off_text},
      {"floor_bytes", "floor", kMiB, [](const L& l) { return Json(l.sweep.floor); }, kTable},
      {"flops", "", Unit::number, [](const L& l) { return Json(l.of.flops); }},
      {"flops_ratio", "FLOPs", Unit::times, [](const L& l) { return Json(l.of.flops / l.none().flops); },
       kTable},
      or_null<L>({"budget_bytes", "", kMiB,
                  [](const L& l) { return l.of.budget == 0 ? Json() : Json(l.of.budget); }}),
      or_null<L>({"clock_ms", "", Unit::milliseconds,
                  [](const L& l) { return l.of.seconds > 0 ? Json(ms(l.of.seconds)) : Json(); }}),
      or_null<L>({"more_time", "more time", Unit::share, field<&L::more_time>, kTable}),
      or_null<L>({"step_ms", "step ms", Unit::milliseconds,
                  [](const L& l) { return l.of.measured ? Json(ms(l.of.timing.p50)) : Json(); }, kTable}),
      {"time_ratio", "price", Unit::times, field<&L::price>, kTable},
  };
  return kSchema;
}

// The best span and its neighbours.
std::string best_text(const RecomputeSweep& s) {
  const SweepPoint& best = s.points[s.best];
  const auto mib = [](const SweepPoint& p) { return static_cast<double>(p.predicted.peak_total) / 0x1p20; };
  std::string text = fmt::format("best of one level: {}, {:.2f} MiB", name_of(best.recompute), mib(best));
  for (const SweepPoint& p : s.points) {
    const int64_t away = p.recompute.k - best.recompute.k;
    if (p.recompute.kind == Recompute::Kind::every && (away == 1 || away == -1))
      text += fmt::format("; {} {:+.2f}", name_of(p.recompute), mib(p) - mib(best));
  }
  return text;
}

}  // namespace

StudyPage scaling_page(const ScalingReport& report) {
  const ScalingRequest& q = report.request;
  StudyPage page;
  page.place = fmt::format("{}, {}, {}: peaks over the length of a sequence, MiB", report.size,
                           spec_text(q.spec), q.rank.device.str());
  page.columns = scaling_schema().forms();
  Json series = Json::array();
  for (const ScalingSeries& s : report.series) {
    Json points = Json::array();
    for (const ScalingPoint& p : s.points) {
      page.rows.push_back(scaling_schema().row({report, s, p}));
      points.append(page.rows.back());
    }
    series.append({{"attention", s.attention},
                   {"points", points},
                   {"exponent", s.fit.exponent},
                   {"exponent_at_end", s.fit.last},
                   {"r2", s.fit.r2}});
    if (s.points.size() > 1)
      page.notes.push_back(fmt::format(
          "{}: activations grow as ctx^{:.2f} over all points (r2 {:.3f}), as ctx^{:.2f} at the end",
          s.attention, s.fit.exponent, s.fit.r2, s.fit.last));
  }
  for (const std::string& file : report.files) page.notes.push_back(fmt::format("chart: {}", file));
  page.json = {
      {"command", "memory scaling"},        {"size", report.size},        {"phase", name_of(q.spec.mode)},
      {"dtype", name_of(q.spec.precision)}, {"batch", q.spec.step.batch}, {"device", q.rank.device.str()},
      {"floor_bytes", floor_bytes(q.spec)}, {"series", series},           {"files", report.files}};
  return page;
}

std::vector<NamedChart> scaling_charts(const ScalingReport& report) {
  const ScalingRequest& q = report.request;
  LineChart peak{
      .title = "Peak of a step's memory over the length of a sequence",
      .below_title = fmt::format("{}, {}, {}", report.size, spec_text(q.spec), q.rank.device.str()),
      .x_label = "sequence length",
      .y_label = "MiB",
      .x_ticks = {},
      .lines = {}};
  for (const int64_t context : q.contexts)
    peak.x_ticks.push_back({static_cast<double>(context), fmt::format("{}", context)});
  LineChart parts = peak;
  parts.title = "Peak of the activations, and the score matrices held at the peak";
  const auto draw = [](LineChart& chart, ChartLine line, LineStyle style, std::size_t colour,
                       std::string line_name) {
    line.style = style;
    line.colour = colour;
    line.name = std::move(line_name);
    if (!line.points.empty()) chart.lines.push_back(std::move(line));
  };
  std::size_t colour = 0;
  for (const ScalingSeries& s : report.series) {
    ChartLine ran, predicted, floor, own_ran, own, scores;
    for (const ScalingPoint& p : s.points) {
      const auto add = [&p](ChartLine& line, std::size_t bytes) {
        line.points.push_back({static_cast<double>(p.context), static_cast<double>(bytes) / 0x1p20});
      };
      if (p.measured) {
        add(ran, p.measured->peak_total);
        add(own_ran, p.measured->peak[Tag::activation]);
      }
      add(predicted, p.predicted.peak_total);
      add(floor, floor_bytes(q.spec));
      add(own, p.activations);
      if (p.scores > 0) add(scores, p.scores);
    }
    const bool none_ran = ran.points.empty();
    const std::string grows = fmt::format("{}: x^{:.2f} at the end", s.attention, s.fit.last);
    draw(peak, ran, LineStyle::measured, colour, s.attention);
    draw(peak, predicted, LineStyle::predicted, colour, none_ran ? s.attention : "");
    draw(peak, floor, LineStyle::floor, colour, "");
    draw(parts, own_ran, LineStyle::measured, colour, grows);
    draw(parts, own, LineStyle::predicted, colour, none_ran ? grows : "");
    draw(parts, scores, LineStyle::predicted, colour + report.series.size(),
         fmt::format("{}, scores alone", s.attention));
    ++colour;
  }
  const std::string name =
      fmt::format("scaling-{}-{}-b{}", report.size, name_of(q.spec.precision), q.spec.step.batch);
  return {{name + "-peak", line_chart_svg(peak)}, {name + "-activations", line_chart_svg(parts)}};
}

StudyPage recompute_page(const RecomputeReport& report) {
  const RecomputeSweep& s = report.sweep;
  StudyPage page;
  page.place =
      fmt::format("{}, {}, ctx {}, {} blocks, {}: recomputation, peaks in MiB", report.size,
                  spec_text(report.spec), report.spec.step.context, report.spec.model.layers, report.device);
  page.columns = sweep_schema().forms();
  for (const SweepPoint& p : s.points) page.rows.push_back(sweep_schema().row({s, p}));
  if (s.best != 0) page.notes.push_back(best_text(s));
  page.notes.push_back(
      fmt::format("by formula: {:.2f} fixed + ceil(blocks / k) inputs of {:.2f} + k blocks of {:.2f}",
                  static_cast<double>(s.fixed) / 0x1p20, static_cast<double>(s.stream) / 0x1p20,
                  static_cast<double>(s.block) / 0x1p20));
  if (!report.clock.empty()) {
    page.notes.push_back(
        fmt::format("more time: of the step with all its ops, by {}; plan: the fastest policy "
                    "of budgets between the peaks of none and nested",
                    report.clock));
    if (!report.clock_note.empty()) page.notes.push_back(report.clock_note);
  }
  page.notes.emplace_back("floor: the bytes of all parameters in this precision");
  if (!report.not_measured.empty())
    page.notes.push_back(fmt::format("predicted only: {}", report.not_measured));
  page.json = {{"command", "memory recompute-sweep"},
               {"size", report.size},
               {"phase", name_of(report.spec.mode)},
               {"dtype", name_of(report.spec.precision)},
               {"batch", report.spec.step.batch},
               {"ctx", report.spec.step.context},
               {"layers", report.spec.model.layers},
               {"device", report.device},
               {"block_input_bytes", s.stream},
               {"block_kept_bytes", s.block},
               {"fixed_bytes", s.fixed},
               {"floor_bytes", s.floor},
               {"best", s.best == 0 ? Json() : Json(name_of(s.points[s.best].recompute))},
               {"not_measured", report.not_measured},
               {"clock", report.clock},
               {"files", report.files},
               {"points", page.rows}};
  return page;
}

std::vector<NamedChart> recompute_charts(const RecomputeReport& report) {
  LineChart chart{
      .title = "Time for memory: recompute policies",
      .below_title = fmt::format("{}, {}, ctx {}, {}; time by {}", report.size, spec_text(report.spec),
                                 report.spec.step.context, report.device, report.clock),
      .x_label = "peak of the step, MiB",
      .y_label = "time of a step, % of none's",
      .x_ticks = {},
      .lines = {}};
  const SweepPoint& none = report.sweep.points.front();
  ChartLine plans, spans;
  std::vector<const SweepPoint*> by_memory;
  for (const SweepPoint& p : report.sweep.points) by_memory.push_back(&p);
  std::stable_sort(by_memory.begin(), by_memory.end(), [](const SweepPoint* a, const SweepPoint* b) {
    return a->predicted.peak_total < b->predicted.peak_total;
  });
  for (const SweepPoint* p : by_memory) {
    if (p->seconds <= 0 || none.seconds <= 0) continue;
    const ChartPoint at{static_cast<double>(p->predicted.peak_total) / 0x1p20,
                        100 * p->seconds / none.seconds};
    const bool span = p->recompute.kind == Recompute::Kind::every || p->recompute == Recompute::nested;
    (span ? spans : plans).points.push_back(at);
  }
  for (const SweepPoint* p : {by_memory.front(), by_memory.back()}) {  // those between would cover each other
    const double at = static_cast<double>(p->predicted.peak_total) / 0x1p20;
    chart.x_ticks.push_back({at, fmt::format("{:.0f}", at)});
  }
  plans.style = spans.style = LineStyle::predicted;
  plans.name = "none, and the best plan of each budget";
  spans.name = "block, every:k, nested";
  spans.colour = 1;
  for (ChartLine* line : {&plans, &spans}) {
    if (!line->points.empty()) chart.lines.push_back(std::move(*line));
  }
  return {{fmt::format("recompute-{}-{}-b{}-c{}", report.size, name_of(report.spec.precision),
                       report.spec.step.batch, report.spec.step.context),
           line_chart_svg(chart)}};
}

}  // namespace kiln
