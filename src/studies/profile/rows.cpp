// The rows of a profile: what a traced step is made of, and how each list of it is shown.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "perf/trace/kernel_name.h"
#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/format.h"
#include "studies/profile/render.h"

namespace kiln {
namespace {

constexpr Where kTable = Where::table;
constexpr Unit kMs = Unit::milliseconds;

double value(const Json& row, std::string_view key) { return row.at(key).get<double>(); }

// --- kernels

const Schema<KernelRow>& kernel_schema() {
  using R = KernelRow;
  static const Schema<R> kSchema = {
      {"name", "name", Unit::text, field<&R::name>, kTable},
      {"group", "group", Unit::text, field<&R::group>, kTable},
      {"calls", "calls", Unit::count, field<&R::calls>, kTable},
      {"ms", "ms", kMs, field<&R::ms>, kTable},
      {"share", "share", Unit::share, field<&R::share>, kTable},
      {"predicted_ms", "predicted", kMs, field<&R::predicted_ms>, kTable},
      {"roofline_ms", "roofline", kMs, field<&R::floor_ms>, kTable, "floor_ms"},
  };
  return kSchema;
}

std::vector<KernelRow> kernels(const StepProfile& p, const Trace& trace, const PhaseSet& set) {
  std::vector<KernelRow> rows = kernels_of(trace, set, p.rates);
  if (p.source == TraceSource::cupti)
    for (KernelRow& row : rows) row.name = short_kernel_name(row.name);
  return rows;
}

Json kernels_json(const ProfileReport& report, const StepProfile& p) {
  Json phases = Json::object();
  for (StepPhase phase : report.phases)
    phases[name_of(phase)] = kernel_schema().rows(kernels(p, p.step(), set_of(phase)));
  return phases;
}

Json top_json(const StepProfile& p) {
  // By their full names: short ones may collide.
  const auto forward = kernels_of(p.forward.median(), kForward, p.rates);
  const auto both = kernels_of(p.step(), kForwardBackward, p.rates);
  if (forward.empty() || both.empty()) return nullptr;
  return {{"forward", kernel_schema().row(kernels(p, p.forward.median(), kForward).front())},
          {"forward_backward", kernel_schema().row(kernels(p, p.step(), kForwardBackward).front())},
          {"same", forward.front().name == both.front().name}};
}

Json not_products_json(const ProfileReport& report, const StepProfile& p) {
  Json rows = Json::array(), groups = Json::object();
  for (const KernelRow& k : kernels(p, p.forward.median(), kForward)) {
    if (k.group != KernelGroup::matmul && k.share > report.above) rows.append(kernel_schema().row(k));
  }
  for (const GroupRow& g : groups_of(p.forward.median(), kForward))
    groups[name_of(g.group)] = {{"calls", g.calls}, {"ms", g.ms}, {"share", g.share}};
  return {{"above", report.above}, {"kernels", rows}, {"groups", groups}};
}

// --- matmuls, attention's parts, callers

const Schema<MatmulShare>& share_schema() {
  using R = MatmulShare;
  static const Schema<R> kSchema = {
      {"of", "of", Unit::text, nullptr, kTable},
      {"total_ms", "all ms", kMs, field<&R::total_ms>, kTable},
      {"matmul_ms", "matmul ms", kMs, field<&R::matmul_ms>, kTable},
      {"attention_ms", "", kMs, field<&R::attention_ms>},
      {"share", "share", Unit::share, field<&R::matmul>, kTable},
      {"predicted_share", "predicted", Unit::share, field<&R::predicted>, kTable},
      {"roofline_share", "at the roofline", Unit::share, field<&R::at_the_floor>, kTable, "floor_share"},
      {"with_attention", "with attention", Unit::share, field<&R::with_attention>, kTable},
  };
  return kSchema;
}

struct PartLine {
  const AttentionPart& part;
  double ms, flops;  // of all parts
};

const Schema<PartLine>& part_schema() {
  using L = PartLine;
  using J = const Json&;
  static const Schema<L> kSchema = {
      {"part", "part", Unit::text, [](const L& l) { return Json(l.part.name); }, kTable},
      {"calls", "calls", Unit::count, [](const L& l) { return Json(l.part.calls); }, kTable},
      {"ms", "ms", kMs, [](const L& l) { return Json(l.part.ms); }, kTable},
      {"of_time", "of time", Unit::share, [](const L& l) { return Json(l.part.ms / l.ms); }, kTable},
      {"flops", "GFLOP", Unit::number, [](const L& l) { return Json(l.part.cost.flops); }, kTable, "",
       [](J row) { return digits(value(row, "flops") / 1e9); }},
      {"of_flops", "of FLOPs", Unit::share, [](const L& l) { return Json(l.part.cost.flops / l.flops); },
       kTable},
      {"bytes", "MB", Unit::number, [](const L& l) { return Json(l.part.cost.bytes); }, kTable, "",
       [](J row) { return digits(value(row, "bytes") / 1e6); }},
      {"flop_per_byte", "FLOP/byte", Unit::number,
       [](const L& l) { return Json(l.part.cost.flops / l.part.cost.bytes); }, kTable},
      {"predicted_ms", "predicted ms", kMs, [](const L& l) { return Json(l.part.predicted_ms); }, kTable},
      {"roofline_ms", "roofline ms", kMs, [](const L& l) { return Json(l.part.floor_ms); }, kTable,
       "floor_ms"},
  };
  return kSchema;
}

Json attention_json(const StepProfile& p) {
  const AttentionStudy& a = p.attention;
  Json page = {{"in_the_step", a.in_the_step}, {"variant", a.variant}, {"step_ms", a.step_ms}};
  if (!a.why_not.empty()) {
    page["why_not"] = a.why_not;
    return page;
  }
  page["layers"] = a.layers;
  double ms = 0, flops = 0;
  for (const AttentionPart& part : a.parts) ms += part.ms, flops += part.cost.flops;
  for (const AttentionPart& part : a.parts) page[part.name] = part_schema().row({part, ms, flops});
  const AttentionPart& softmax = a.parts[1];
  page["softmax_over_products_time"] = softmax.ms / (a.parts[0].ms + a.parts[2].ms);
  page["softmax_over_products_flops"] = softmax.cost.flops / (a.parts[0].cost.flops + a.parts[2].cost.flops);
  return page;
}

const Schema<OriginRow>& origin_schema() {
  using R = OriginRow;
  static const Schema<R> kSchema = {
      {"origin", "origin", Unit::text, field<&R::origin>, kTable, "",
       [](const Json& row) { return row.at("origin").text().empty() ? "?" : row.at("origin").text(); }},
      {"ops", "ops", Unit::count, field<&R::ops>, kTable},
      {"ms", "ms", kMs, field<&R::ms>, kTable},
      {"share", "share", Unit::share, field<&R::share>, kTable},
  };
  return kSchema;
}

std::string_view name_of(Dispatch::Bound v) {
  return v == Dispatch::Bound::busy           ? "busy"
         : v == Dispatch::Bound::launch_bound ? "launch-bound"
                                              : "waiting";
}

Json dispatch_json(const Dispatch& d) {
  return {{"wall_ms", d.wall_ms},       {"busy_ms", d.busy_ms},         {"idle_ms", d.idle_ms},
          {"host_ms", d.plain.host_ms}, {"idle_share", d.idle_share()}, {"host_share", d.host_share()},
          {"verdict", name_of(d.bound)}};
}

Json launches_json(const StepProfile& p, const Dispatch& d) {
  const Trace& t = p.step();
  return {{"forward_alone", launches_of(p.forward.median(), kForward)},
          {"forward", launches_of(t, kForward)},
          {"backward", launches_of(t, kBackward)},
          {"optimizer", launches_of(t, kUpdate)},
          {"step", d.launches},
          {"mean_gap_us", d.mean_gap_us},
          {"host_us_each", d.per_launch_us()}};
}

// --- a step

struct StepLine {
  const ProfileReport& report;
  const StepProfile& p;
};

// A value of steps that were traced.
template <auto Get>
Json traced(const StepLine& l) {
  return l.p.traced() ? Json(Get(l.p)) : Json();
}

const Schema<StepLine>& step_schema() {
  using L = StepLine;
  using P = const StepProfile&;
  constexpr Where kDiffers = Where::differs;
  static const Schema<L> kSchema = {
      {"size", "size", Unit::text, [](const L& l) { return Json(l.p.size.name); }, kTable},
      {"device", "", Unit::text, [](const L& l) { return Json(l.report.device); }},
      {"dtype", "precision", Unit::text, [](const L& l) { return Json(name_of(l.p.spec.precision)); },
       kTable},
      {"batch", "batch", Unit::text, [](const L& l) { return Json(l.p.spec.step.batch); }, kDiffers},
      {"ctx", "ctx", Unit::text, [](const L& l) { return Json(l.p.spec.step.context); }, kTable},
      {"vocab", "vocab", Unit::text, [](const L& l) { return Json(l.p.spec.model.vocab); }, kDiffers},
      {"micro_steps", "", Unit::count, [](const L& l) { return Json(l.p.spec.step.micro_steps); }},
      {"recompute", "", Unit::text, [](const L& l) { return Json(name_of(l.p.spec.model.recompute)); }},
      {"compile", "", Unit::text, [](const L& l) { return Json(name_of(l.p.spec.model.compile)); }},
      {"preset", "preset", Unit::text, [](const L& l) { return Json(l.p.preset); }, kTable},
      {"variants", "", Unit::text, [](const L& l) { return Json(l.p.variants); }},
      {"tuned", "", Unit::text, [](const L& l) { return Json(l.p.tuned); }},
      {"ranks", "", Unit::count, [](const L&) { return Json(1); }},
      {"predicted_peak_bytes", "", Unit::bytes, [](const L& l) { return Json(l.p.predicted.peak_total); }},
      outcome_columns<L>([](const L& l) { return outcome_json(l.p); }),
      {"graph", "", Unit::text, traced<[](P p) { return p.captured ? "captured" : "off"; }>},
      {"source", "", Unit::text, traced<[](P p) { return name_of(p.source); }>},
      {"note", "", Unit::text, traced<[](P p) { return p.note; }>},
      timing_columns<L>([](const L& l) { return l.p.traced() ? timing_json(l.p.timer) : Json(); }),
      {"traced_steps", "", Unit::count, traced<[](P p) { return p.full.steps.size(); }>},
      {"traced_ms", "traced", kMs, traced<[](P p) { return p.step().ms(); }>, kTable},
      {"traced_over_timer", "", Unit::share, traced<[](P p) { return p.difference(); }>},
      {"agrees", "", Unit::text, traced<[](P p) { return std::abs(p.difference()) <= 0.03; }>},
      {"explanation", "", Unit::text, traced<explain_difference>},
      {"tracing_cost", "tracing costs", Unit::share, traced<[](P p) { return p.tracing_cost(); }>, kTable},
      {"attributed", "", Unit::share, traced<[](P p) { return p.full.attributed; }>},
      {"peak_bytes", "peak MiB", Unit::bytes, traced<[](P p) { return p.measured.peak_total; }>, kTable},
      {"planned_ops", "ops", Unit::count, traced<[](P p) { return p.planned_ops; }>, kTable},
      {"smallest_op_us", "", Unit::number, traced<[](P p) { return 1e3 * p.rates.smallest_ms; }>},
      {"trace_file", "", Unit::text, traced<[](P p) { return p.file; }>},
      {"viewer_file", "", Unit::text, traced<[](P p) { return p.viewer; }>},
  };
  return kSchema;
}

}  // namespace

std::span<const ColumnForm> step_profile_columns() { return step_schema().forms(); }
std::span<const ColumnForm> trace_kernel_columns() { return kernel_schema().forms(); }
std::span<const ColumnForm> matmul_share_columns() { return share_schema().forms(); }
std::span<const ColumnForm> attention_part_columns() { return part_schema().forms(); }
std::span<const ColumnForm> origin_columns() { return origin_schema().forms(); }

Json step_json(const ProfileReport& report, const StepProfile& p) {
  Json row = step_schema().row({report, p});
  if (!p.traced()) return row;
  const Trace& t = p.step();
  const Dispatch d = dispatch_of(t, p.plain());
  const auto share = [&](const Trace& trace, const PhaseSet& set) {
    return share_schema().row(matmul_share(trace, set, p.rates));
  };
  row.update({{"ranges", ranges_json(p, ranges_of(t, p.rates, p.model))},
              {"layers", ranges_json(p, layers_of(t, p.rates, p.model))},
              {"kernels", kernels_json(report, p)},
              {"top_kernel", top_json(p)},
              {"not_matmul", not_products_json(report, p)},
              {"matmul_share",
               {{"forward_alone", share(p.forward.median(), kForward)},
                {"forward", share(t, kForward)},
                {"forward_backward", share(t, kForwardBackward)},
                {"step", share(t, kWholeStep)}}},
              {"attention", attention_json(p)},
              {"launches", launches_json(p, d)},
              {"dispatch", dispatch_json(d)}});
  if (!p.stacks.steps.empty())
    row["origins"] = {{"step_ms", ms(p.stacks.traced.p50)},
                      {"without_ms", ms(p.full.traced.p50)},
                      {"rows", origin_schema().rows(origins_of(p.stacks.median()))}};
  return row;
}

}  // namespace kiln
