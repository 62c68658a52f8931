// The questions of a profile, and their answers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rows/row_values.h"
#include "studies/format.h"
#include "studies/profile/render.h"

namespace kiln {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string milli(double ms) { return fmt::format("{:.3f}", ms); }

std::string unit(const StepProfile& p) { return p.source == TraceSource::cupti ? "kernel" : "op"; }

PageTable ranges_section(const StepProfile& p, const Json& row) {
  PageTable t = page_table("Where the step goes", range_columns(false), row.at("ranges"));
  const Json& all = row.at("ranges").front();
  t.lines.push_back(fmt::format(
      "MFU: the model's operations, HFU: those executed, over the GEMM rate measured here; attention counts "
      "only unmasked pairs. Counted dense, the step's MFU is {} and its HFU {}.",
      percent(all.at("mfu_dense").get<double>()), percent(all.at("hfu_dense").get<double>())));
  t.lines.push_back(fmt::format(
      "roofline: the larger of operations at {} TFLOP/s and bytes at {} GB/s, op by op; predicted: the same, "
      "but no op faster than the smallest one, {} us here.",
      digits(p.rates.best.flops / 1e12), digits(p.rates.best.bytes / 1e9),
      digits(1e3 * p.rates.smallest_ms)));
  return t;
}

// The slowest, and the rest as one row.
PageTable kernels_section(const ProfileReport& report, const StepProfile& p, StepPhase phase,
                          const Json& kernels) {
  const auto most = static_cast<std::size_t>(report.kernels);
  Json shown = Json::array();
  Json rest = {{"name", ""},   {"calls", 0},          {"ms", 0.0},
               {"share", 0.0}, {"predicted_ms", 0.0}, {"roofline_ms", 0.0}};
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (i < most) {
      shown.append(kernels[i]);
      continue;
    }
    rest["calls"] = rest["calls"].get<int64_t>() + kernels[i].at("calls").get<int64_t>();
    for (const char* key : {"ms", "share", "predicted_ms", "roofline_ms"})
      rest[key] = rest[key].get<double>() + kernels[i].at(key).get<double>();
  }
  if (kernels.size() > most) {
    rest["name"] = fmt::format("{} others", kernels.size() - most);
    shown.append(rest);
  }
  return page_table(fmt::format("The {}s of {}", unit(p), name_of(phase)), trace_kernel_columns(), shown);
}

std::string top_line(const char* where, const Json& top) {
  return fmt::format("{}: {}, {} calls, {} ms, {} of it.", where, text_at(top, "name"), text_at(top, "calls"),
                     milli(top.at("ms").get<double>()), percent(top.at("share").get<double>()));
}

PageTable top_section(const StepProfile& p, const Json& top) {
  PageTable t{fmt::format("The most expensive {}", unit(p)), {}};
  if (top.is_null()) {
    t.lines.emplace_back("None ran.");
    return t;
  }
  t.lines = {top_line("forward alone", top.at("forward")),
             top_line("forward and backward", top.at("forward_backward")),
             fmt::format("The same? {}.", top.at("same").get<bool>() ? "Yes" : "No")};
  return t;
}

PageTable not_products_section(const ProfileReport& report, const Json& others) {
  PageTable t = page_table(fmt::format("Non-matmul kernels above {} of forward alone", percent(report.above)),
                           trace_kernel_columns(), others.at("kernels"));
  std::string groups;
  for (const auto& [name, group] : others.at("groups").items())
    groups +=
        fmt::format("{}{} {}", groups.empty() ? "" : ", ", name, percent(group.at("share").get<double>()));
  t.lines.push_back(fmt::format("{}By group: {}.", others.at("kernels").empty() ? "None. " : "", groups));
  return t;
}

PageTable products_section(const StepProfile& p, const Json& shares) {
  Json rows = Json::array();
  for (const auto& [key, of] : {std::pair{"forward_alone", "forward alone (inference)"},
                                {"forward", "forward of training"},
                                {"forward_backward", "forward and backward"},
                                {"step", "step with AdamW"}}) {
    Json row = shares.at(key);
    row["of"] = of;
    rows.append(std::move(row));
  }
  PageTable t = page_table("The share of matmuls", matmul_share_columns(), rows);
  t.lines.emplace_back(
      p.source == TraceSource::cupti
          ? "`with attention` adds kernels that hold attention's matmuls and its softmax in one."
          : "An op counts whole: linear_cross_entropy as matmul. `with attention` adds attention where it is "
            "one op for matmuls and softmax.");
  return t;
}

PageTable attention_section(const StepProfile& p, const Json& attention) {
  const char* const kHeading = "Softmax against attention's two matmuls, forward";
  const AttentionStudy& a = p.attention;
  if (!a.why_not.empty()) return {kHeading, {}, 1, false, {fmt::format("Not measured: {}.", a.why_not)}};
  Json parts = Json::array();
  for (const AttentionPart& part : a.parts) parts.append(attention.at(part.name));
  PageTable t = page_table(kHeading, attention_part_columns(), parts);
  const AttentionPart &scores = a.parts[0], &softmax = a.parts[1], &last = a.parts[2];
  const double time_ratio = attention.at("softmax_over_products_time").get<double>();
  const double flop_ratio = attention.at("softmax_over_products_flops").get<double>();
  t.lines.push_back(fmt::format(
      "Softmax takes {:.2f} times as long as both matmuls with {:.3f} of their FLOPs: {:.0f} times as long "
      "per FLOP. It moves {} bytes per FLOP, they {}.",
      time_ratio, flop_ratio, time_ratio / flop_ratio, digits(softmax.cost.bytes / softmax.cost.flops),
      digits((scores.cost.bytes + last.cost.bytes) / (scores.cost.flops + last.cost.flops))));
  if (!a.in_the_step)
    t.lines.push_back(
        fmt::format("The step's attention is one op, {}: {} ms forward over all layers. The parts were run "
                    "separately as `composed`, one layer at the same shape.",
                    a.variant.empty() ? "none" : a.variant, milli(a.step_ms)));
  return t;
}

std::string bound_by(const StepProfile& p, const Dispatch& d) {
  const bool gpu = p.source != TraceSource::clock;
  switch (d.bound) {
    case Dispatch::Bound::busy:
      return fmt::format("Not launch-bound: {} {} of the step.", gpu ? "the GPU is busy" : "ops take",
                         percent(1 - d.idle_share()));
    case Dispatch::Bound::launch_bound:
      return gpu ? fmt::format(
                       "Launch-bound: the GPU is idle {} of the step, and the host is at work for {} of it.",
                       percent(d.idle_share()), percent(d.host_share()))
                 : fmt::format(
                       "Launch-bound: {} of the step passes between ops; they are too small for the cost of "
                       "a call.",
                       percent(d.idle_share()));
    case Dispatch::Bound::waiting:
      break;
  }
  return fmt::format("The GPU is idle {} of the step, but not for lack of launches: the host needs {} of it.",
                     percent(d.idle_share()), percent(d.host_share()));
}

PageTable dispatch_section(const StepProfile& p, const Json& ranges) {
  const Dispatch d = dispatch_of(p.step(), p.plain());
  Json phases = Json::array();
  for (const Json& range : ranges) {
    if (!text_at(range, "range").empty()) continue;
    Json row = range;
    if (p.source != TraceSource::cupti) row.erase("kernels");  // ops are all there is to count
    if (text_at(row, "phase") == "step")
      row["dispatch_ms"] = d.plain.host_ms;
    else if (p.step().replayed)
      row.erase("dispatch_ms");
    phases.append(std::move(row));
  }
  PageTable t = page_table("Launches, and waits", range_columns(true), phases);
  t.lines.push_back(
      fmt::format("{} launches a step, {} us between one and the next, {} us of the host for each. {}",
                  d.launches, digits(d.mean_gap_us), digits(d.per_launch_us()), bound_by(p, d)));
  if (p.step().replayed)
    t.lines.emplace_back("The step was replayed as graphs: the host launches graphs, not kernels.");
  if (p.planned_ops > 0)
    t.lines.push_back(fmt::format(
        "Meta predicted {} ops a step; {} ran. Peak memory {} MiB, predicted {} MiB.", p.planned_ops,
        p.step().ops.size(), digits(static_cast<double>(p.measured.peak_total) / 0x1p20),
        digits(static_cast<double>(p.predicted.peak_total) / 0x1p20)));
  return t;
}

PageTable stacks_section(const ProfileReport& report, const StepProfile& p, const Json& origins) {
  const auto& all = origins.at("rows").items_of_array();
  const std::size_t most = std::min(all.size(), static_cast<std::size_t>(2 * report.kernels));
  PageTable t = page_table("Where ops are called from", origin_columns(),
                           Json::Array(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(most)));
  const double with = origins.at("step_ms").get<double>(), without = origins.at("without_ms").get<double>();
  t.lines.push_back(fmt::format(
      "A separate pass: a step with call stacks recorded takes {} ms, traced without them {} ms: {:+.1f} us "
      "an op.",
      milli(with), milli(without),
      1e3 * (with - without) / static_cast<double>(std::max<std::size_t>(1, p.step().ops.size()))));
  return t;
}

PageTable timer_section(const StepProfile& p) {
  PageTable t{"The trace against the timer", {}};
  t.lines.push_back(explain_difference(p));
  t.lines.push_back(
      fmt::format("Tracing costs {:+.1f} % of a step ({} traced, {} without, whose p20 and p80 are {:.1f} % "
                  "apart).",
                  100 * p.tracing_cost(), p.full.steps.size(), p.timer.samples.size(),
                  100 * (p.timer.p80 - p.timer.p20) / p.timer.p50));
  if (p.source == TraceSource::cupti)
    t.lines.push_back(
        fmt::format("{} of the kernels' time is attributed to its op.", percent(p.full.attributed)));
  if (p.source == TraceSource::events || !p.note.empty())
    t.lines.push_back(
        fmt::format("{}he times are of CUDA events around ops, and the step ran op by op.",
                    p.note.empty() ? "T" : fmt::format("CUPTI gave no records ({}): t", p.note)));
  t.lines.push_back(
      fmt::format("Timeline: {} (a page, opens offline); {} (for ui.perfetto.dev or chrome://tracing).",
                  p.viewer, p.file));
  return t;
}

}  // namespace

std::string explain_difference(const StepProfile& p) {
  const Dispatch d = dispatch_of(p.step(), p.plain());
  const double timer = 1e3 * p.timer.p50;
  std::string text = fmt::format(
      "Traced step {} ms = {} ms in {}s + {} ms between them; the timer says {} ms without the tracer: "
      "{:+.1f} %.",
      milli(p.step().ms()), milli(d.busy_ms), unit(p), milli(d.idle_ms), milli(timer), 100 * p.difference());
  if (std::abs(p.difference()) <= 0.03) return text + " They agree within 3 %.";
  const double least = 1e3 * p.timer.min,
               most = 1e3 * *std::max_element(p.timer.samples.begin(), p.timer.samples.end());
  if (p.step().ms() >= least && p.step().ms() <= most)
    return text + fmt::format(
                      " The steps without the tracer themselves took from {} to {} ms: the machine varies by "
                      "more than the two differ.",
                      milli(least), milli(most));
  if (p.step().ms() < least)
    return text + fmt::format(
                      " The fastest step without the tracer took {} ms: something else ran on this machine "
                      "then.",
                      milli(least));
  if (p.source == TraceSource::cupti) {
    const double gaps = timer - d.busy_ms;
    return text +
           fmt::format(
               " The kernels alone take {} ms; without CUPTI, which sets kernels apart and makes launches "
               "slower, {} ms are between them.",
               milli(d.busy_ms), milli(std::max(0.0, gaps)));
  }
  return text +
         fmt::format(
             " No step without the tracer took as long ({} ms at most): the rest is the tracer, {} us for "
             "each of {} ops, and the noise of this machine.",
             milli(most), digits(1e3 * (p.step().ms() - timer) / std::max(1, d.launches)), d.launches);
}

std::vector<PageTable> profile_sections(const ProfileReport& report, const StepProfile& p, const Json& row) {
  std::vector<PageTable> all = {ranges_section(p, row)};
  for (StepPhase phase : report.phases)
    all.push_back(kernels_section(report, p, phase, row.at("kernels").at(name_of(phase))));
  all.push_back(top_section(p, row.at("top_kernel")));
  all.push_back(not_products_section(report, row.at("not_matmul")));
  all.push_back(products_section(p, row.at("matmul_share")));
  all.push_back(attention_section(p, row.at("attention")));
  all.push_back(dispatch_section(p, row.at("ranges")));
  if (row.contains("origins")) all.push_back(stacks_section(report, p, row.at("origins")));
  all.push_back(timer_section(p));
  return all;
}

}  // namespace kiln
