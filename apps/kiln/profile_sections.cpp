// The questions of a profile, and their answers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kiln/profile_pages.h"
#include "perf/kernel_name.h"

namespace kiln::cli {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string milli(double ms) { return fmt::format("{:.3f}", ms); }

std::string unit(const StepProfile& p) { return p.source == TraceSource::cupti ? "kernel" : "op"; }

std::string shown_name(const StepProfile& p, const std::string& name) {
  return p.source == TraceSource::cupti ? short_kernel_name(name) : name;
}

std::string indented(const RangeRow& r) {
  if (r.range.empty()) return r.phase;
  const std::size_t star = r.range.rfind('*');
  const std::size_t dots = static_cast<std::size_t>(std::count(r.range.begin(), r.range.end(), '.')) -
                           (star == std::string::npos ? 0 : 1);
  const std::size_t last = r.range.rfind('.');
  const bool whole = dots == 0 || last == std::string::npos;
  return std::string(2 + 2 * dots, ' ') + (whole ? r.range : r.range.substr(last + 1));
}

ProfileSection ranges_section(const StepProfile& p) {
  ProfileSection s{"Where the step goes", {}, 1, {}};
  s.table = {
      {"range", unit(p) + "s", "ms", "of step", "predicted", "floor", "TFLOP/s", "GB/s", "MFU", "HFU"}};
  for (const RangeRow& r : ranges_of(p.step(), p.rates, p.model)) {
    const bool works = r.cost.flops > 0 && r.wall_ms() > 0;
    s.table.push_back({indented(r), fmt::format("{}", r.kernels), milli(r.wall_ms()),
                       percent(r.wall_ms() / p.step().ms()), milli(r.predicted_ms), milli(r.floor_ms),
                       works ? digits(r.per_second(r.cost.flops) / 1e12) : "-",
                       works ? digits(r.per_second(r.cost.bytes) / 1e9) : "-",
                       r.model_causal > 0 ? percent(r.per_second(r.model_causal) / p.rates.best.flops) : "-",
                       works ? percent(r.per_second(r.cost.flops) / p.rates.best.flops) : "-"});
  }
  const RangeRow all = ranges_of(p.step(), p.rates, p.model).front();
  s.lines.push_back(
      fmt::format("MFU: the model's operations, HFU: those executed, over the product rate measured here; "
                  "attention counts "
                  "the pairs that see each other. Counted dense, the step's MFU is {} and its HFU {}.",
                  percent(all.per_second(all.model_dense) / p.rates.best.flops),
                  percent(all.per_second(all.dense_flops) / p.rates.best.flops)));
  s.lines.push_back(
      fmt::format("floor: the larger of operations at {} TFLOP/s and bytes at {} GB/s, op by op; predicted: "
                  "the same, but no op "
                  "faster than the smallest one, {} us here.",
                  digits(p.rates.best.flops / 1e12), digits(p.rates.best.bytes / 1e9),
                  digits(1e3 * p.rates.smallest_ms)));
  return s;
}

ProfileSection kernels_section(const ProfileReport& report, const StepProfile& p, StepPhase phase) {
  ProfileSection s{fmt::format("The {}s of {}", unit(p), name_of(phase)), {}, 2, {}};
  s.table = {{unit(p), "group", "calls", "ms", "share", "predicted", "floor"}};
  const std::vector<KernelRow> rows = kernels_of(p.step(), set_of(phase), p.rates);
  double rest = 0, rest_share = 0, rest_predicted = 0, rest_floor = 0;
  int others = 0, calls = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const KernelRow& r = rows[i];
    if (i < static_cast<std::size_t>(report.kernels)) {
      s.table.push_back({shown_name(p, r.name), std::string(name_of(r.group)), fmt::format("{}", r.calls),
                         milli(r.ms), percent(r.share), milli(r.predicted_ms), milli(r.floor_ms)});
      continue;
    }
    ++others;
    calls += r.calls;
    rest += r.ms;
    rest_share += r.share;
    rest_predicted += r.predicted_ms;
    rest_floor += r.floor_ms;
  }
  if (others > 0)
    s.table.push_back({fmt::format("{} others", others), "", fmt::format("{}", calls), milli(rest),
                       percent(rest_share), milli(rest_predicted), milli(rest_floor)});
  return s;
}

std::string top_line(const StepProfile& p, const char* where, const std::vector<KernelRow>& rows) {
  if (rows.empty()) return fmt::format("{}: none ran.", where);
  const KernelRow& top = rows.front();
  return fmt::format("{}: {}, {} calls, {} ms, {} of it.", where, shown_name(p, top.name), top.calls,
                     milli(top.ms), percent(top.share));
}

ProfileSection top_section(const StepProfile& p) {
  ProfileSection s{fmt::format("The most expensive {}", unit(p)), {}, 1, {}};
  const auto forward = kernels_of(p.forward.median(), kForward, p.rates);
  const auto both = kernels_of(p.step(), kForwardBackward, p.rates);
  s.lines.push_back(top_line(p, "forward alone", forward));
  s.lines.push_back(top_line(p, "forward and backward", both));
  const bool same = !forward.empty() && !both.empty() && forward.front().name == both.front().name;
  s.lines.push_back(fmt::format("The same? {}.", same ? "Yes" : "No"));
  return s;
}

ProfileSection not_products_section(const ProfileReport& report, const StepProfile& p) {
  ProfileSection s{
      fmt::format("What is no matrix product, above {} of forward alone", percent(report.above)), {}, 2, {}};
  s.table = {{unit(p), "group", "calls", "ms", "share", "predicted", "floor"}};
  for (const KernelRow& r : kernels_of(p.forward.median(), kForward, p.rates)) {
    if (r.group == KernelGroup::matmul || r.share <= report.above) continue;
    s.table.push_back({shown_name(p, r.name), std::string(name_of(r.group)), fmt::format("{}", r.calls),
                       milli(r.ms), percent(r.share), milli(r.predicted_ms), milli(r.floor_ms)});
  }
  if (s.table.size() == 1) s.table.clear();
  std::string groups;
  for (const GroupRow& g : groups_of(p.forward.median(), kForward))
    groups += fmt::format("{}{} {}", groups.empty() ? "" : ", ", name_of(g.group), percent(g.share));
  s.lines.push_back(fmt::format("{}By group: {}.", s.table.empty() ? "None. " : "", groups));
  return s;
}

ProfileSection products_section(const StepProfile& p) {
  ProfileSection s{"The share of matrix products", {}, 1, {}};
  s.table = {{"of", "all ms", "products ms", "share", "predicted", "at the floor", "with attention"}};
  auto add = [&](const char* name, const Trace& t, const PhaseSet& set) {
    const MatmulShare m = matmul_share(t, set, p.rates);
    s.table.push_back({name, milli(m.total_ms), milli(m.matmul_ms), percent(m.matmul()), percent(m.predicted),
                       percent(m.at_the_floor), percent(m.with_attention())});
  };
  add("forward alone (inference)", p.forward.median(), kForward);
  add("forward of training", p.step(), kForward);
  add("forward and backward", p.step(), kForwardBackward);
  add("step with AdamW", p.step(), kWholeStep);
  if (p.source != TraceSource::cupti)
    s.lines.emplace_back(
        "An op counts whole: linear_cross_entropy as product. `with attention` adds attention where it is "
        "one "
        "op, products and softmax together.");
  else
    s.lines.emplace_back(
        "`with attention` adds kernels that hold attention's products and its softmax in one.");
  return s;
}

ProfileSection attention_section(const StepProfile& p) {
  ProfileSection s{"Softmax against attention's two products, forward", {}, 1, {}};
  const AttentionStudy& a = p.attention;
  if (!a.why_not.empty()) {
    s.lines.push_back(fmt::format("Not measured: {}.", a.why_not));
    return s;
  }
  double ms = 0;
  Cost cost;
  for (const AttentionPart& part : a.parts) {
    ms += part.ms;
    cost = cost + part.cost;
  }
  s.table = {
      {"part", "calls", "ms", "of time", "GFLOP", "of FLOPs", "MB", "FLOP/byte", "predicted ms", "floor ms"}};
  for (const AttentionPart& part : a.parts) {
    s.table.push_back({part.name, fmt::format("{}", part.calls), milli(part.ms), percent(part.ms / ms),
                       digits(part.cost.flops / 1e9), percent(part.cost.flops / cost.flops),
                       digits(part.cost.bytes / 1e6), digits(part.cost.flops / part.cost.bytes),
                       milli(part.predicted_ms), milli(part.floor_ms)});
  }
  const AttentionPart &scores = a.parts[0], &softmax = a.parts[1], &last = a.parts[2];
  const double products_ms = scores.ms + last.ms, products_flops = scores.cost.flops + last.cost.flops;
  const double time_ratio = softmax.ms / products_ms, flop_ratio = softmax.cost.flops / products_flops;
  s.lines.push_back(fmt::format(
      "Softmax takes {:.2f} times as long as both products with {:.3f} of their FLOPs: {:.0f} times as long "
      "a FLOP. "
      "It moves {} bytes a FLOP, they {}.",
      time_ratio, flop_ratio, time_ratio / flop_ratio, digits(softmax.cost.bytes / softmax.cost.flops),
      digits((scores.cost.bytes + last.cost.bytes) / products_flops)));
  if (!a.in_the_step)
    s.lines.push_back(
        fmt::format("The step's attention is one op, {}: {} ms forward in all layers. The parts were run "
                    "beside it as `composed`, one layer at the same shape.",
                    a.variant.empty() ? "none" : a.variant, milli(a.step_ms)));
  return s;
}

std::string verdict(const StepProfile& p, const Dispatch& d) {
  const bool gpu = p.source != TraceSource::clock;
  switch (d.verdict) {
    case Dispatch::Verdict::busy:
      return fmt::format("Not launch-bound: {} {} of the step.", gpu ? "the GPU works" : "ops take",
                         percent(1 - d.idle_share()));
    case Dispatch::Verdict::launch_bound:
      return gpu ? fmt::format(
                       "Launch-bound: the GPU is idle {} of the step, and the host is at work for {} of it.",
                       percent(d.idle_share()), percent(d.host_share()))
                 : fmt::format(
                       "Launch-bound: {} of the step passes between ops; they are too small for what a call "
                       "costs.",
                       percent(d.idle_share()));
    case Dispatch::Verdict::waiting:
      break;
  }
  return fmt::format("The GPU is idle {} of the step, and not for want of launches: the host needs {} of it.",
                     percent(d.idle_share()), percent(d.host_share()));
}

ProfileSection dispatch_section(const StepProfile& p) {
  const bool gpu = p.source != TraceSource::clock;
  ProfileSection s{"Launches, and who waits", {}, 1, {}};
  s.table = {{"of", "ops", "kernels", "wall ms", gpu ? "GPU busy" : "in ops",
              gpu ? "GPU idle" : "between ops", "host dispatch", "predicted ms", "floor ms"}};
  const Dispatch d = dispatch_of(p.step(), p.plain());
  for (const RangeRow& r : ranges_of(p.step(), p.rates, p.model)) {
    if (!r.range.empty()) continue;
    const bool whole = r.phase == "step";
    const bool known = whole || !p.step().replayed;
    s.table.push_back({r.phase, fmt::format("{}", r.ops), fmt::format("{}", r.kernels), milli(r.wall_ms()),
                       milli(r.ms), milli(r.idle_ms),
                       known ? milli(whole ? d.plain.host_ms : r.dispatch_ms) : "-", milli(r.predicted_ms),
                       milli(r.floor_ms)});
  }
  if (p.source != TraceSource::cupti) {  // ops are all there is to count
    for (std::vector<std::string>& line : s.table) line.erase(line.begin() + 2);
  }
  s.lines.push_back(
      fmt::format("{} launches a step, {} us between one and the next, {} us of the host for each. {}",
                  d.launches, digits(d.mean_gap_us), digits(d.per_launch_us()), verdict(p, d)));
  if (p.step().replayed)
    s.lines.emplace_back("The step was replayed as graphs: the host launches graphs, not kernels.");
  if (p.planned_ops > 0)
    s.lines.push_back(fmt::format("Meta foretold {} ops a step; {} ran. Peak memory {} MiB, foretold {} MiB.",
                                  p.planned_ops, p.step().ops.size(),
                                  digits(static_cast<double>(p.measured.peak_total) / 0x1p20),
                                  digits(static_cast<double>(p.predicted.peak_total) / 0x1p20)));
  return s;
}

ProfileSection stacks_section(const ProfileReport& report, const StepProfile& p) {
  ProfileSection s{"Where ops are called from", {}, 1, {}};
  s.table = {{"origin", "ops", "ms", "share"}};
  const std::vector<OriginRow> rows = origins_of(p.stacks.median());
  for (std::size_t i = 0; i < std::min(rows.size(), static_cast<std::size_t>(2 * report.kernels)); ++i)
    s.table.push_back({rows[i].origin.empty() ? "?" : rows[i].origin, fmt::format("{}", rows[i].ops),
                       milli(rows[i].ms), percent(rows[i].share)});
  s.lines.push_back(
      fmt::format("A pass of its own: a step whose stacks are taken lasts {} ms, traced without them {} ms: "
                  "{:+.1f} us an op.",
                  milli(1e3 * p.stacks.traced.p50), milli(1e3 * p.full.traced.p50),
                  1e6 * (p.stacks.traced.p50 - p.full.traced.p50) /
                      static_cast<double>(std::max<std::size_t>(1, p.step().ops.size()))));
  return s;
}

ProfileSection timer_section(const StepProfile& p) {
  ProfileSection s{"The trace against the timer", {}, 1, {}};
  s.lines.push_back(explain_difference(p));
  s.lines.push_back(
      fmt::format("Tracing costs {:+.1f} % of a step ({} traced, {} without, whose p20 and p80 are {:.1f} % "
                  "apart).",
                  100 * p.tracing_cost(), p.full.steps.size(), p.timer.samples.size(),
                  100 * (p.timer.p80 - p.timer.p20) / p.timer.p50));
  if (p.source == TraceSource::cupti)
    s.lines.push_back(
        fmt::format("{} of the kernels' time is attributed to its op.", percent(p.full.attributed)));
  if (p.source == TraceSource::events || !p.note.empty())
    s.lines.push_back(
        fmt::format("{}he times are of CUDA events around ops, and the step ran op by op.",
                    p.note.empty() ? "T" : fmt::format("CUPTI gave no records ({}): t", p.note)));
  s.lines.push_back(fmt::format("Timeline: {} (open it in ui.perfetto.dev or chrome://tracing).", p.file));
  return s;
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
               "dearer, {} ms lie between them.",
               milli(d.busy_ms), milli(std::max(0.0, gaps)));
  }
  return text +
         fmt::format(
             " No step without the tracer took as long ({} ms at most): the rest is the tracer, {} us for "
             "each of {} ops, and the noise of this machine.",
             milli(most), digits(1e3 * (p.step().ms() - timer) / std::max(1, d.launches)), d.launches);
}

std::vector<ProfileSection> profile_sections(const ProfileReport& report, const StepProfile& p) {
  std::vector<ProfileSection> all = {ranges_section(p)};
  for (StepPhase phase : report.phases) all.push_back(kernels_section(report, p, phase));
  all.push_back(top_section(p));
  all.push_back(not_products_section(report, p));
  all.push_back(products_section(p));
  all.push_back(attention_section(p));
  all.push_back(dispatch_section(p));
  if (!p.stacks.steps.empty()) all.push_back(stacks_section(report, p));
  all.push_back(timer_section(p));
  return all;
}

}  // namespace kiln::cli
