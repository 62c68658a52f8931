// The pages of `kiln memory scaling` and `kiln memory recompute-sweep`.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "studies/format.h"
#include "kiln/memory_pages.h"
#include "report/charts/line_chart.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

std::string spec_words(const StepSpec& s) {
  return fmt::format("{}, {}, batch {}", name_of(s.mode), name_of(s.precision), s.step.batch);
}

std::string measured_words(const std::optional<MemoryStats>& m) { return m ? fine_mib(m->peak_total) : "-"; }

ordered_json measured_json(const std::optional<MemoryStats>& m) {
  return m ? ordered_json(m->peak_total) : ordered_json();
}

}  // namespace

std::string scaling_text(const ScalingReport& report) {
  const ScalingRequest& q = report.request;
  std::string text = fmt::format("{}, {}, {}: peaks over the length of a sequence, MiB\n\n", report.size,
                                 spec_words(q.spec), q.rank.device.str());
  TextTable table = {
      {"attention", "ctx", "predicted", "measured", "floor", "activations", "scores", "of the peak"}};
  for (const ScalingSeries& s : report.series) {
    for (const ScalingPoint& p : s.points)
      table.push_back({s.attention, fmt::format("{}", p.context), fine_mib(p.predicted.peak_total),
                       measured_words(p.measured), fine_mib(floor_bytes(q.spec)), fine_mib(p.activations),
                       fine_mib(p.scores),
                       fmt::format("{:.1f} %", 100 * static_cast<double>(p.scores) /
                                                   static_cast<double>(p.predicted.peak_total))});
  }
  text += aligned(table, 1) + "\n";
  for (const ScalingSeries& s : report.series) {
    if (s.points.size() < 2) continue;
    text += fmt::format(
        "{}: activations grow as ctx^{:.2f} over all points (r2 {:.3f}), as ctx^{:.2f} at the end\n",
        s.attention, s.fit.exponent, s.fit.r2, s.fit.last);
  }
  for (const std::string& file : report.files) text += fmt::format("picture: {}\n", file);
  return text;
}

std::string scaling_json(const ScalingReport& report) {
  const ScalingRequest& q = report.request;
  ordered_json series = ordered_json::array();
  for (const ScalingSeries& s : report.series) {
    ordered_json points = ordered_json::array();
    for (const ScalingPoint& p : s.points)
      points.push_back({{"ctx", p.context},
                        {"predicted_peak_bytes", p.predicted.peak_total},
                        {"measured_peak_bytes", measured_json(p.measured)},
                        {"activation_bytes", p.activations},
                        {"score_bytes_at_peak", p.scores}});
    series.push_back({{"attention", s.attention},
                      {"points", points},
                      {"exponent", s.fit.exponent},
                      {"exponent_at_end", s.fit.last},
                      {"r2", s.fit.r2}});
  }
  return dump({{"command", "memory scaling"},
               {"size", report.size},
               {"phase", name_of(q.spec.mode)},
               {"dtype", name_of(q.spec.precision)},
               {"batch", q.spec.step.batch},
               {"device", q.rank.device.str()},
               {"floor_bytes", floor_bytes(q.spec)},
               {"series", series},
               {"files", report.files}},
              2) +
         "\n";
}

std::vector<NamedPicture> scaling_charts(const ScalingReport& report) {
  const ScalingRequest& q = report.request;
  LineChart peak{
      .title = "Peak of a step's memory over the length of a sequence",
      .below_title = fmt::format("{}, {}, {}", report.size, spec_words(q.spec), q.rank.device.str()),
      .x_label = "tokens of a sequence",
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

std::string sweep_text(const RecomputeReport& report) {
  const RecomputeSweep& s = report.sweep;
  std::string text =
      fmt::format("{}, {}, ctx {}, {} blocks, {}: recomputation, peaks in MiB\n\n", report.size,
                  spec_words(report.spec), report.spec.step.context, report.spec.model.layers, report.device);
  TextTable table = {
      {"recompute", "predicted", "measured", "by formula", "off by", "floor", "FLOPs", "step ms", "price"}};
  const SweepPoint& none = s.points.front();
  for (std::size_t i = 0; i < s.points.size(); ++i) {
    const SweepPoint& p = s.points[i];
    const bool timed = p.measured.has_value(), both = timed && none.measured.has_value();
    table.push_back({fmt::format("{}{}", name_of(p.recompute), i == s.best ? " (best of one level)" : ""),
                     fine_mib(p.predicted.peak_total), measured_words(p.measured),
                     p.formula == 0 ? "-" : fine_mib(p.formula),
                     p.formula == 0
                         ? "-"
                         : fmt::format("{:+.1f} %", 100 * (static_cast<double>(p.formula) /
                                                               static_cast<double>(p.predicted.peak_total) -
                                                           1)),
                     fine_mib(s.floor), fmt::format("{:.2f}x", p.flops / none.flops),
                     timed ? fmt::format("{:.4g}", ms(p.timing.p50)) : "-",
                     both ? fmt::format("{:.2f}x", p.timing.p50 / none.timing.p50) : "-"});
  }
  text += aligned(table, 1);
  if (s.best != 0) {
    text += fmt::format("\nbest of one level: {}, {} MiB", name_of(s.points[s.best].recompute),
                        fine_mib(s.points[s.best].predicted.peak_total));
    for (const SweepPoint& p : s.points) {
      const int64_t away = p.recompute.k - s.points[s.best].recompute.k;
      if (p.recompute.kind == Recompute::Kind::every && (away == 1 || away == -1))
        text += fmt::format("; {} {:+.2f}", name_of(p.recompute),
                            (static_cast<double>(p.predicted.peak_total) -
                             static_cast<double>(s.points[s.best].predicted.peak_total)) /
                                0x1p20);
    }
    text += "\n";
  }
  text += fmt::format(
      "by formula: {} fixed + ceil(blocks / k) inputs of {} + k blocks of {}\n"
      "floor: what the precision keeps of every parameter\n",
      fine_mib(s.fixed), fine_mib(s.stream), fine_mib(s.block));
  if (!report.not_measured.empty()) text += fmt::format("predicted only: {}\n", report.not_measured);
  return text;
}

std::string sweep_json(const RecomputeReport& report) {
  const RecomputeSweep& s = report.sweep;
  ordered_json points = ordered_json::array();
  for (const SweepPoint& p : s.points)
    points.push_back(
        {{"recompute", name_of(p.recompute)},
         {"k", p.recompute.kind == Recompute::Kind::every ? ordered_json(p.recompute.k) : ordered_json()},
         {"predicted_peak_bytes", p.predicted.peak_total},
         {"predicted_activation_bytes", p.predicted.peak[Tag::activation]},
         {"measured_peak_bytes", measured_json(p.measured)},
         {"formula_peak_bytes", p.formula == 0 ? ordered_json() : ordered_json(p.formula)},
         {"flops", p.flops},
         {"step_ms", p.measured ? ordered_json(ms(p.timing.p50)) : ordered_json()}});
  return dump({{"command", "memory recompute-sweep"},
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
               {"best", s.best == 0 ? ordered_json() : ordered_json(name_of(s.points[s.best].recompute))},
               {"not_measured", report.not_measured},
               {"points", points}},
              2) +
         "\n";
}

}  // namespace kiln::cli
