// The JSON of `kiln profile`; docs/profile.md lists the keys.
#include <cmath>

#include "base/build_info.h"
#include "kiln/profile_pages.h"
#include "perf/kernel_name.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

ordered_json head_json(const ProfileReport& report, const StepProfile& p) {
  const StepOptions& step = p.spec.step;
  return {{"size", p.size.name},
          {"device", report.device},
          {"dtype", name_of(p.spec.precision)},
          {"batch", step.batch},
          {"ctx", step.context},
          {"vocab", p.spec.model.vocab},
          {"micro_steps", step.micro_steps},
          {"recompute", name_of(p.spec.model.recompute)},
          {"preset", p.preset},
          {"variants", p.variants},
          {"tuned", p.tuned},
          {"ranks", 1},
          {"predicted_peak_bytes", p.predicted.peak_total}};
}

ordered_json range_json(const StepProfile& p, const RangeRow& r) {
  const double rate = p.rates.best.flops;
  return {{"phase", r.phase},
          {"range", r.range},
          {"ops", r.ops},
          {"kernels", r.kernels},
          {"wall_ms", r.wall_ms()},
          {"kernel_ms", r.ms},
          {"idle_ms", r.idle_ms},
          {"dispatch_ms", r.dispatch_ms},
          {"of_step", r.wall_ms() / p.step().ms()},
          {"predicted_ms", r.predicted_ms},
          {"floor_ms", r.floor_ms},
          {"flops", r.cost.flops},
          {"bytes", r.cost.bytes},
          {"model_flops", r.model_causal},
          {"model_flops_dense", r.model_dense},
          {"tflops", r.per_second(r.cost.flops) / 1e12},
          {"gb_per_s", r.per_second(r.cost.bytes) / 1e9},
          {"mfu", r.per_second(r.model_causal) / rate},
          {"mfu_dense", r.per_second(r.model_dense) / rate},
          {"hfu", r.per_second(r.cost.flops) / rate},
          {"hfu_dense", r.per_second(r.dense_flops) / rate}};
}

ordered_json ranges_json(const StepProfile& p, const std::vector<RangeRow>& rows) {
  ordered_json all = ordered_json::array();
  for (const RangeRow& r : rows) all.push_back(range_json(p, r));
  return all;
}

ordered_json kernel_json(const StepProfile& p, const KernelRow& k) {
  return {{"name", p.source == TraceSource::cupti ? short_kernel_name(k.name) : k.name},
          {"group", name_of(k.group)},
          {"calls", k.calls},
          {"ms", k.ms},
          {"share", k.share},
          {"predicted_ms", k.predicted_ms},
          {"floor_ms", k.floor_ms}};
}

ordered_json kernels_json(const ProfileReport& report, const StepProfile& p) {
  ordered_json phases = ordered_json::object();
  for (StepPhase phase : report.phases) {
    ordered_json rows = ordered_json::array();
    for (const KernelRow& k : kernels_of(p.step(), set_of(phase), p.rates)) rows.push_back(kernel_json(p, k));
    phases[std::string(name_of(phase))] = rows;
  }
  return phases;
}

ordered_json top_json(const StepProfile& p) {
  const auto forward = kernels_of(p.forward.median(), kForward, p.rates);
  const auto both = kernels_of(p.step(), kForwardBackward, p.rates);
  if (forward.empty() || both.empty()) return nullptr;
  return {{"forward", kernel_json(p, forward.front())},
          {"forward_backward", kernel_json(p, both.front())},
          {"same", forward.front().name == both.front().name}};
}

ordered_json not_products_json(const ProfileReport& report, const StepProfile& p) {
  ordered_json kernels = ordered_json::array(), groups = ordered_json::object();
  for (const KernelRow& k : kernels_of(p.forward.median(), kForward, p.rates)) {
    if (k.group != KernelGroup::matmul && k.share > report.above) kernels.push_back(kernel_json(p, k));
  }
  for (const GroupRow& g : groups_of(p.forward.median(), kForward))
    groups[std::string(name_of(g.group))] = {{"calls", g.calls}, {"ms", g.ms}, {"share", g.share}};
  return {{"above", report.above}, {"kernels", kernels}, {"groups", groups}};
}

ordered_json share_json(const Trace& t, const PhaseSet& set, const OpRates& rates) {
  const MatmulShare m = matmul_share(t, set, rates);
  return {{"total_ms", m.total_ms},
          {"matmul_ms", m.matmul_ms},
          {"attention_ms", m.attention_ms},
          {"share", m.matmul()},
          {"predicted_share", m.predicted},
          {"floor_share", m.at_the_floor},
          {"with_attention", m.with_attention()}};
}

ordered_json attention_json(const StepProfile& p) {
  const AttentionStudy& a = p.attention;
  ordered_json page = {{"in_the_step", a.in_the_step}, {"variant", a.variant}, {"step_ms", a.step_ms}};
  if (!a.why_not.empty()) {
    page["why_not"] = a.why_not;
    return page;
  }
  page["layers"] = a.layers;
  for (const AttentionPart& part : a.parts)
    page[part.name] = {{"calls", part.calls},
                       {"ms", part.ms},
                       {"flops", part.cost.flops},
                       {"bytes", part.cost.bytes},
                       {"flop_per_byte", part.cost.flops / part.cost.bytes},
                       {"predicted_ms", part.predicted_ms},
                       {"floor_ms", part.floor_ms}};
  const double ms = a.parts[0].ms + a.parts[2].ms, flops = a.parts[0].cost.flops + a.parts[2].cost.flops;
  page["softmax_over_products_time"] = a.parts[1].ms / ms;
  page["softmax_over_products_flops"] = a.parts[1].cost.flops / flops;
  return page;
}

std::string_view name_of(Dispatch::Verdict v) {
  return v == Dispatch::Verdict::busy           ? "busy"
         : v == Dispatch::Verdict::launch_bound ? "launch-bound"
                                                : "waiting";
}

ordered_json step_page(const ProfileReport& report, const StepProfile& p) {
  ordered_json page = head_json(report, p);
  if (!p.traced()) {
    page["gate"] = p.status == StepProfile::Status::no_memory ? "no memory" : "failed";
    page["reason"] = p.reason;
    return page;
  }
  const Trace& t = p.step();
  const Dispatch d = dispatch_of(t, p.plain());
  page.update({{"gate", "passed"},
               {"graph", p.captured ? "captured" : "off"},
               {"source", name_of(p.source)},
               {"note", p.note},
               {"warmups", p.timer.warmups},
               {"samples", p.timer.samples.size()},
               {"mean_ms", ms(p.timer.mean)},
               {"p50_ms", ms(p.timer.p50)},
               {"std_ms", ms(p.timer.std)},
               {"p95_ms", ms(p.timer.p95)},
               {"min_ms", ms(p.timer.min)},
               {"noise", p.timer.noise()},
               {"traced_steps", p.full.steps.size()},
               {"traced_ms", t.ms()},
               {"traced_over_timer", p.difference()},
               {"agrees", std::abs(p.difference()) <= 0.03},
               {"explanation", explain_difference(p)},
               {"tracing_cost", p.tracing_cost()},
               {"attributed", p.full.attributed},
               {"peak_bytes", p.measured.peak_total},
               {"planned_ops", p.planned_ops},
               {"smallest_op_us", 1e3 * p.rates.smallest_ms},
               {"ranges", ranges_json(p, ranges_of(t, p.rates, p.model))},
               {"layers", ranges_json(p, layers_of(t, p.rates, p.model))},
               {"kernels", kernels_json(report, p)},
               {"top_kernel", top_json(p)},
               {"not_matmul", not_products_json(report, p)},
               {"matmul_share",
                {{"forward_alone", share_json(p.forward.median(), kForward, p.rates)},
                 {"forward", share_json(t, kForward, p.rates)},
                 {"forward_backward", share_json(t, kForwardBackward, p.rates)},
                 {"step", share_json(t, kWholeStep, p.rates)}}},
               {"attention", attention_json(p)},
               {"launches",
                {{"forward_alone", launches_of(p.forward.median(), kForward)},
                 {"forward", launches_of(t, kForward)},
                 {"backward", launches_of(t, kBackward)},
                 {"optimizer", launches_of(t, kUpdate)},
                 {"step", d.launches},
                 {"mean_gap_us", d.mean_gap_us},
                 {"host_us_each", d.per_launch_us()}}},
               {"dispatch",
                {{"wall_ms", d.wall_ms},
                 {"busy_ms", d.busy_ms},
                 {"idle_ms", d.idle_ms},
                 {"host_ms", d.plain.host_ms},
                 {"idle_share", d.idle_share()},
                 {"host_share", d.host_share()},
                 {"verdict", name_of(d.verdict)}}},
               {"trace_file", p.file}});
  if (p.stacks.steps.empty()) return page;
  ordered_json origins = ordered_json::array();
  for (const OriginRow& o : origins_of(p.stacks.median()))
    origins.push_back({{"origin", o.origin}, {"ops", o.ops}, {"ms", o.ms}, {"share", o.share}});
  page["origins"] = {
      {"step_ms", ms(p.stacks.traced.p50)}, {"without_ms", ms(p.full.traced.p50)}, {"rows", origins}};
  return page;
}

}  // namespace

std::string profile_json(const ProfileReport& report) {
  ordered_json steps = ordered_json::array(), others = ordered_json::array();
  for (const StepProfile& p : report.steps) (p.traced() ? steps : others).push_back(step_page(report, p));
  return dump({{"command", "profile"},
               {"device", report.device},
               {"host", host_json(report)},
               {"build_id", build_info().build_id},
               {"ceilings", ceilings_json(report)},
               {"steps", steps},
               {"not_traced", others}},
              2) +
         "\n";
}

std::vector<std::string> profile_result_lines(const ProfileReport& report) {
  std::vector<std::string> lines;
  for (const StepProfile& p : report.steps) {
    if (p.status == StepProfile::Status::failed) continue;
    lines.push_back(result_line("profile", step_page(report, p), p.timer, host_json(report)));
  }
  return lines;
}

}  // namespace kiln::cli
