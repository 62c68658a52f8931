#include "studies/ablation/quality_curves.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/plain_number.h"
#include "report/charts/line_chart.h"
#include "rows/row_status.h"
#include "rows/schema.h"
#include "studies/ablation/text_step.h"
#include "studies/format.h"
#include "studies/op/op.h"
#include "studies/variant_check.h"

namespace kiln {
namespace {

constexpr int kWindows = 20;

struct Curve {
  std::vector<double> losses;
  double seconds = 0;
};

Curve train_curve(const QualityRequest& r, const std::vector<std::string_view>& on, const char* name,
                  const std::function<void(const std::string&)>& progress) {
  StepSpec shape;
  shape.model = config_of(r.size);
  shape.step.batch = r.batch;
  shape.step.context = r.context;
  shape.step.micro_steps = r.micro_steps;
  const AblationSetup setup = ablation_setup(shape, on, r.device);
  RankOptions o = options_for(r.device, r.threads, r.seed);
  o.variants = setup.variants.ops;
  RankContext ctx(o);
  TextStep step(ctx, setup, byte_tokens(shape.model.vocab, ctx.pool()));
  Curve curve;
  const auto begin = std::chrono::steady_clock::now();
  for (int s = 1; s <= r.steps; ++s) {
    throw_if_stopped(r.stop);
    step.run();
    curve.losses.push_back(step.finish().loss);
    if (s % 10 == 0 || s == r.steps)
      progress(fmt::format("{}: step {} of {}, loss {:.4f}", name, s, r.steps, curve.losses.back()));
  }
  curve.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return curve;
}

double mean_of(const std::vector<double>& losses, std::size_t from, std::size_t to) {
  return std::accumulate(losses.begin() + static_cast<std::ptrdiff_t>(from),
                         losses.begin() + static_cast<std::ptrdiff_t>(to), 0.0) /
         static_cast<double>(to - from);
}

struct Worst {
  double difference = 0;
  int64_t step = 0;
};

Worst worst_of(const QualityReport& r) {
  Worst worst;
  const auto width = static_cast<std::size_t>(r.window());
  for (std::size_t from = 0; from < r.baseline.size(); from += width) {
    const std::size_t to = std::min(from + width, r.baseline.size());
    const double a = mean_of(r.baseline, from, to), b = mean_of(r.optimized, from, to);
    const double difference = std::isfinite(b - a) && a != 0 ? std::abs(b - a) / std::abs(a) : INFINITY;
    if (difference >= worst.difference) worst = {difference, static_cast<int64_t>(to)};
  }
  return worst;
}

// Means of windows that grow with the step: as many points to a decade of a logarithmic axis.
ChartLine line_of(const std::string& name, std::size_t colour, LineStyle style,
                  const std::vector<double>& losses) {
  ChartLine line{name, colour, style, {}};
  for (std::size_t from = 0; from < losses.size();) {
    const std::size_t to = std::min(losses.size(), std::max(from + 1, from + from / 8));
    line.points.push_back({static_cast<double>(to), mean_of(losses, from, to)});
    from = to;
  }
  return line;
}

std::string caption(const QualityReport& r) {
  return fmt::format("{}, {} x {} tokens, {} steps on kiln's own sources, {}", r.request.size.name,
                     r.request.batch, r.request.context, r.request.steps, r.request.device.str());
}

const Schema<QualityReport>& schema() {
  using R = const QualityReport&;
  static const Schema<QualityReport> kSchema = {
      {"size", "size", Unit::text, [](R r) { return Json(r.request.size.name); }, Where::table},
      {"batch", "batch", Unit::count, [](R r) { return Json(r.request.batch); }, Where::table},
      {"ctx", "ctx", Unit::count, [](R r) { return Json(r.request.context); }, Where::table},
      {"steps", "steps", Unit::count, [](R r) { return Json(r.request.steps); }, Where::table},
      {"switches", "switches", Unit::text,
       [](R r) { return Json(fmt::format("{}", fmt::join(r.request.only, ","))); }},
      {"differences", "runs with", Unit::text, [](R r) { return Json(r.differences); }, Where::wide},
      {"first_loss", "first loss", Unit::number, [](R r) { return Json(r.baseline.front()); }, Where::table},
      {"baseline_loss", "baseline", Unit::number, [](R r) { return Json(r.last_baseline()); }, Where::table},
      {"optimized_loss", "optimized", Unit::number, [](R r) { return Json(r.last_optimized()); },
       Where::table},
      {"worst_difference", "worst", Unit::share, [](R r) { return Json(r.worst()); }, Where::table},
      {"worst_step", "at step", Unit::count, [](R r) { return Json(r.worst_step()); }, Where::table},
      {"tolerance", "allowed", Unit::share, [](R r) { return Json(r.request.tolerance); }, Where::table},
      {"gate", "gate", Unit::text, [](R r) { return Json(r.passed() ? "passed" : "failed"); }, Where::table},
      {"window", "", Unit::count, [](R r) { return Json(r.window()); }},
      {"baseline_losses", "", Unit::text, [](R r) { return Json(r.baseline); }},
      {"optimized_losses", "", Unit::text, [](R r) { return Json(r.optimized); }}};
  return kSchema;
}

}  // namespace

int QualityReport::window() const { return std::max<int>(1, static_cast<int>(baseline.size()) / kWindows); }
double QualityReport::worst() const { return worst_of(*this).difference; }
int64_t QualityReport::worst_step() const { return worst_of(*this).step; }
double QualityReport::last_baseline() const {
  return mean_of(baseline, baseline.size() - static_cast<std::size_t>(window()), baseline.size());
}
double QualityReport::last_optimized() const {
  return mean_of(optimized, optimized.size() - static_cast<std::size_t>(window()), optimized.size());
}

QualityReport quality_curves(const QualityRequest& request,
                             const std::function<void(const std::string&)>& progress) {
  QualityReport report;
  report.request = request;
  std::vector<std::string_view> on;
  for (const std::string_view name : request.only)
    if (why_not_on(find_ablation_switch("--only", name), request.device).empty()) on.push_back(name);
  report.request.only = on;
  StepSpec shape;
  shape.model = config_of(request.size);
  report.differences = ablation_setup(shape, on, request.device).differences();
  Curve baseline = train_curve(request, {}, "baseline", progress);
  Curve optimized = train_curve(request, on, "optimized", progress);
  report.baseline = std::move(baseline.losses);
  report.optimized = std::move(optimized.losses);
  report.baseline_seconds = baseline.seconds;
  report.optimized_seconds = optimized.seconds;
  progress("");
  return report;
}

std::span<const ColumnForm> quality_columns() { return schema().forms(); }

StudyPage quality_page(const QualityReport& r) {
  StudyPage page;
  page.columns = schema().forms();
  page.rows = {schema().row(r)};
  page.place = caption(r);
  page.notes.push_back(fmt::format(
      "Means of {} steps each: the optimized step's loss ends at {}, the baseline's at {}; the largest "
      "difference is {:.2f} %, at step {}; at most {:.2f} % is allowed.",
      r.window(), plain(r.last_optimized(), 4), plain(r.last_baseline(), 4), 100 * r.worst(), r.worst_step(),
      100 * r.request.tolerance));
  page.notes.push_back(fmt::format(
      "The baseline trained for {} s, the optimized step for {} s (every step waits for its loss).",
      plain(r.baseline_seconds, 3), plain(r.optimized_seconds, 3)));
  page.json = {{"command", "ablate quality"}, {"device", r.request.device.str()}, {"row", schema().row(r)}};
  return page;
}

std::string quality_svg(const QualityReport& r) {
  LineChart chart;
  chart.title = "Training loss, baseline and optimized";
  chart.below_title = caption(r);
  chart.x_label = "step";
  chart.y_label = "loss";
  for (double at = 1; at <= static_cast<double>(r.baseline.size()); at *= 10)
    chart.x_ticks.push_back({at, plain(at)});
  chart.x_ticks.push_back({static_cast<double>(r.baseline.size()), fmt::format("{}", r.baseline.size())});
  chart.lines = {line_of("baseline", 0, LineStyle::measured, r.baseline),
                 line_of("optimized", 1, LineStyle::predicted, r.optimized)};
  chart.style_names = {"baseline", "optimized", ""};
  return line_chart_svg(chart);
}

std::string quality_result_line(const QualityReport& r) {
  Json row = schema().row(r);
  row["status"] = name_of(RowStatus::ok);
  row["device"] = r.request.device.str();
  return result_line("ablate quality", row, {}, Json::object());
}

}  // namespace kiln
