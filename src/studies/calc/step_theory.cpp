#include "studies/calc/step_theory.h"

#include <fmt/format.h>

#include <algorithm>

#include "perf/timing/op_times.h"
#include "rows/row_values.h"
#include "studies/calc/derivation.h"
#include "studies/format.h"
#include "studies/variant_check.h"
#include "train/presets.h"
#include "train/step_choice.h"

namespace kiln {
namespace {

// The lookup table is not multiplied; a tied one is, as the head.
double multiplied_parameters(const StepTheoryRequest& q) {
  const ModelConfig& c = q.model.config;
  return static_cast<double>(param_count(q.model)) -
         (c.tied ? 0.0 : static_cast<double>(c.vocab * c.d_model));
}

// 6 a multiplied parameter and token, and attention's pairs: 4 D a pair and layer forward, twice that
// backward.
double formula_flops(const StepTheoryRequest& q) {
  const ModelConfig& c = q.model.config;
  const double tokens = static_cast<double>(q.batch * q.context) * q.micro_steps;
  const double width = static_cast<double>(c.heads * c.head_dim());
  const double pairs = static_cast<double>(q.context) * (q.convention == FlopsConvention::causal ? 0.5 : 1.0);
  const double whole =
      (6 * multiplied_parameters(q) + 12 * static_cast<double>(c.layers) * width * pairs) * tokens;
  return q.mode == StepMode::forward ? whole / 3 : whole;
}

// An op's own count is of the pairs it computes; the dense convention counts those behind the mask, too.
double dense_share(const StepTheoryRequest& q, const TimedOp& op) {
  const bool masked = op.op == std::string_view("attention") && q.convention == FlopsConvention::dense;
  const auto T = static_cast<double>(q.context);
  return masked ? 2 * T / (T + 1) : 1;
}

std::optional<TimeModel> calibrated_model(const StepTheoryRequest& q) {
  if (!q.hardware.calibration) return std::nullopt;
  TimeModel model(q.hardware, policy_of(q.precision).compute);
  return model.calibrated() ? std::optional<TimeModel>(std::move(model)) : std::nullopt;
}

// As `bench step` and `train` decide it.
bool replays_graphs(const StepTheoryRequest& q) {
  return q.hardware.kind == DeviceType::cuda && q.preset != "baseline";
}

// What is said of a prediction, or of its absence.
std::vector<std::string> prediction_notes(const StepTheory& theory) {
  const Hardware& h = theory.request.hardware;
  if (!theory.predicted)
    return {fmt::format(
        "No prediction: {} has no calibration of {}. `kiln doctor --calibrate` measures one on such "
        "a machine; --hw here takes it.",
        h.name, name_of(policy_of(theory.request.precision).compute))};
  const StepTime& t = *theory.predicted;
  std::vector<std::string> notes = {fmt::format(
      "Predicted: {}; {} in ops, {} between them. Calibrated {} by kiln {}{}.", with_unit(t.total(), "s"),
      with_unit(t.ops, "s"), with_unit(t.between, "s"), h.calibration->date, h.calibration->build,
      h.calibrated_on.empty()
          ? ""
          : fmt::format(" on {}: each op as far from its roofline as there", h.calibrated_on))};
  if (t.unknown > 0)
    notes.push_back(
        fmt::format("{:.0f} % of it is in calls of a kind that was not timed, taken to be as far from "
                    "their roofline as others of their class.",
                    100 * t.unknown / t.total()));
  return notes;
}

template <class Part>
double sum_of(const std::vector<TheoryOp>& ops, Part part) {
  double sum = 0;
  for (const TheoryOp& op : ops) sum += part(op);
  return sum;
}

std::string title_of(const StepTheoryRequest& q, const std::string& more) {
  return fmt::format("{}, {}, batch {} of {} tokens{}, {}, preset {}{}, recompute {}{}", q.model.name,
                     name_of(q.precision), q.batch, q.context,
                     q.micro_steps > 1 ? fmt::format(", {} micro-steps", q.micro_steps) : "", name_of(q.mode),
                     q.preset, q.variants.empty() ? "" : " + " + q.variants, name_of(q.recompute), more);
}

Json request_json(const StepTheoryRequest& q) {
  return {{"size", q.model.name},
          {"params", param_count(q.model)},
          {"precision", name_of(q.precision)},
          {"batch", q.batch},
          {"ctx", q.context},
          {"grad_accum", q.micro_steps},
          {"mode", name_of(q.mode)},
          {"preset", q.preset},
          {"variants", q.variants},
          {"recompute", name_of(q.recompute)}};
}

using Row = TheoryOp;
Json intensity(const Row& r) { return r.cost.bytes > 0 ? Json(r.cost.flops / r.cost.bytes) : Json(); }

template <const char* kKey, const char* kUnit>
std::string prefixed(const Json& row) {
  return with_unit(*number_at(row, kKey), kUnit);
}
constexpr char kFlops[] = "flops", kBytes[] = "bytes", kFlopUnit[] = "FLOP", kByteUnit[] = "B";

Schema<Row> op_columns() {
  return {
      {"op", "op", Unit::text, field<&Row::op>, Where::table},
      {"variant", "variant", Unit::text, field<&Row::variant>, Where::table},
      {"pass", "pass", Unit::text, field<&Row::pass>, Where::table},
      {"calls", "calls", Unit::count, field<&Row::calls>, Where::table},
      {kFlops, "operations", Unit::number, [](const Row& r) { return Json(r.cost.flops); }, Where::table, "",
       prefixed<kFlops, kFlopUnit>},
      {kBytes, "bytes", Unit::number, [](const Row& r) { return Json(r.cost.bytes); }, Where::table, "",
       prefixed<kBytes, kByteUnit>},
      {"intensity", "FLOP/byte", Unit::number, intensity, Where::wide},
  };
}

const Schema<Row>& flops_schema() {
  static const Schema<Row> kSchema = op_columns();
  return kSchema;
}

const Schema<Row>& time_schema() {
  static const Schema<Row> kSchema =
      op_columns() +
      Schema<Row>{
          {"compute_ms", "compute ms", Unit::milliseconds, [](const Row& r) { return Json(ms(r.compute)); },
           Where::table},
          {"memory_ms", "memory ms", Unit::milliseconds, [](const Row& r) { return Json(ms(r.memory)); },
           Where::table},
          {"roofline_ms", "roofline ms", Unit::milliseconds,
           [](const Row& r) { return Json(ms(r.roofline)); }, Where::table},
          {"bound", "bound", Unit::text, [](const Row& r) { return Json(r.bound()); }, Where::table},
          {"predicted_ms", "predicted ms", Unit::milliseconds,
           [](const Row& r) { return r.predicted > 0 ? Json(ms(r.predicted)) : Json(); }, Where::table},
      };
  return kSchema;
}

}  // namespace

StepSpec StepTheoryRequest::spec() const {
  StepSpec s;
  s.model = model.config;
  s.model.recompute = recompute;
  choose_variants(preset, variants, hardware.kind).apply_to(s.model);
  s.precision = precision;
  s.mode = mode;
  s.step.batch = batch;
  s.step.context = context;
  s.step.micro_steps = micro_steps;
  s.step.graph = false;
  return s;
}

StepClock StepTheoryRequest::clock() const {
  const DType compute = policy_of(precision).compute;
  return hardware.bytes_per_s > 0 ? clock_of(hardware, compute)
                                  : clock_of("", Device::meta(hardware.kind), 1, compute);
}

void StepTheoryRequest::resolve_policy() {
  if (recompute.kind != Recompute::Kind::budget) return;
  if (ranks == 1) {
    StepSpec step = spec();
    kiln::resolve_policy(step, rank(), clock());
    recompute = step.model.recompute;
    return;
  }
  const auto budget = static_cast<std::size_t>(recompute.budget);
  recompute = Recompute::none;
  RankOptions one = rank();
  one.world = ranks;
  const StepSpec step = spec();
  const MemoryRequest request{.model = step.model,
                              .layout = layout_for(precision, step.step, ranks, strategy == "fsdp"),
                              .step = step.step,
                              .strategy = strategy};
  recompute = chosen_or_throw(choose_policy(request, one, budget, clock()), budget).recompute;
}

RankOptions StepTheoryRequest::rank() const {
  RankOptions o = options_for(Device::meta(hardware.kind), 1, seed);
  o.variants = choose_variants(preset, variants, hardware.kind).ops;
  return o;
}

double StepTheory::flops() const {
  return sum_of(ops, [](const TheoryOp& op) { return op.cost.flops; });
}
double StepTheory::recomputed() const {
  return sum_of(ops, [](const TheoryOp& op) { return op.pass == "recomputed" ? op.cost.flops : 0; });
}
double StepTheory::roofline() const {
  return sum_of(ops, [](const TheoryOp& op) { return op.roofline; });
}

StepTheory step_theory(const StepTheoryRequest& request) {
  StepTheory theory;
  theory.request = request;
  theory.model_flops = formula_flops(request);
  const bool timed = request.hardware.bytes_per_s > 0;
  const DType compute = policy_of(request.precision).compute;
  const Rates rates =
      timed ? Rates{request.hardware.flops_of(name_of(compute)), request.hardware.copy_rate()} : Rates{};
  const std::optional<TimeModel> model = calibrated_model(request);
  const std::vector<TimedOp> ops = plan_step(request.spec(), request.rank()).ops;
  if (model) theory.predicted = model->step(ops, replays_graphs(request));
  for (const TimedOp& op : ops) {
    const std::string pass(step_pass(op));
    auto row = std::find_if(theory.ops.begin(), theory.ops.end(), [&](const TheoryOp& r) {
      return r.op == op.op && r.variant == op.variant && r.pass == pass;
    });
    if (row == theory.ops.end())
      row = theory.ops.insert(theory.ops.end(), TheoryOp{std::string(op.op), std::string(op.variant), pass});
    const Cost cost{op.cost.flops * dense_share(request, op), op.cost.bytes};
    ++row->calls;
    row->cost = row->cost + cost;
    if (!timed) continue;
    const double computing = cost.flops / rates.flops, moving = cost.bytes / rates.bytes;
    row->compute += computing;
    row->memory += moving;
    row->roofline += std::max(computing, moving) + request.launch;
    if (model) row->predicted += model->seconds(op);
  }
  std::stable_sort(theory.ops.begin(), theory.ops.end(), [&](const TheoryOp& a, const TheoryOp& b) {
    return timed ? a.roofline > b.roofline : a.cost.flops > b.cost.flops;
  });
  return theory;
}

StudyPage flops_page(const StepTheory& theory, bool wide) {
  const StepTheoryRequest& q = theory.request;
  const bool causal = q.convention == FlopsConvention::causal;
  StudyPage page;
  page.place = title_of(q, causal ? "; causal pairs counted" : "; all pairs counted");
  page.columns = flops_schema().forms();
  page.shown.wide = wide;
  for (const TheoryOp& op : theory.ops) page.rows.push_back(flops_schema().row(op));
  const double tokens = static_cast<double>(q.batch * q.context) * q.micro_steps;
  page.notes.push_back(
      fmt::format("Model: (6 x {} multiplied parameters + {} x layers x width x context) x tokens = {} a "
                  "step, {} a token.",
                  formula_number(multiplied_parameters(q)), causal ? 6 : 12,
                  with_unit(theory.model_flops, "FLOP"), with_unit(theory.model_flops / tokens, "FLOP")));
  page.notes.push_back(fmt::format("Executed by the ops: {}, {} of it recomputed; {:.3f} of the model's.",
                                   with_unit(theory.flops(), "FLOP"), with_unit(theory.recomputed(), "FLOP"),
                                   theory.flops() / theory.model_flops));
  page.json = request_json(q);
  page.json.update({{"command", "calc flops"},
                    {"convention", causal ? "causal" : "dense"},
                    {"model_flops", theory.model_flops},
                    {"flops", theory.flops()},
                    {"recomputed_flops", theory.recomputed()},
                    {"rows", page.rows}});
  return page;
}

StudyPage time_page(const StepTheory& theory, bool wide) {
  const StepTheoryRequest& q = theory.request;
  const Hardware& h = q.hardware;
  const std::string_view dtype = name_of(policy_of(q.precision).compute);
  const double rate = h.flops_of(dtype);
  StudyPage page;
  page.place = fmt::format("{}; {}: {} {}, {}", title_of(q, ""), h.title, with_unit(rate, "FLOP/s"), dtype,
                           with_unit(h.copy_rate(), "B/s"));
  page.columns = time_schema().forms();
  page.shown.wide = wide;
  int calls = 0;
  for (const TheoryOp& op : theory.ops) {
    page.rows.push_back(time_schema().row(op));
    calls += op.calls;
  }
  page.notes.push_back(
      fmt::format("Roofline of the step: {}; each op at the larger of its operations over the matmul rate "
                  "and its bytes over the copy "
                  "rate. A bound: what launches, tails and caches do is not in it.",
                  with_unit(theory.roofline(), "s")));
  if (q.launch > 0)
    page.notes.push_back(fmt::format("{} calls of {} each are in it.", calls, with_unit(q.launch, "s")));
  page.notes.push_back(
      fmt::format("At the roofline {:.1f} % of the matmul rate would be the model's own operations (MFU).",
                  100 * theory.model_flops / theory.roofline() / rate));
  for (std::string& note : prediction_notes(theory)) page.notes.push_back(std::move(note));
  page.notes.push_back("Rates: " + h.from + ".");
  page.json = request_json(q);
  page.json.update({{"command", "calc time"},
                    {"hw", h.name},
                    {"flops_per_s", rate},
                    {"bytes_per_s", h.copy_rate()},
                    {"launch_s", q.launch},
                    {"calls", calls},
                    {"model_flops", theory.model_flops},
                    {"flops", theory.flops()},
                    {"roofline_ms", ms(theory.roofline())},
                    {"predicted_ms", theory.predicted ? Json(ms(theory.predicted->total())) : Json()},
                    {"rows", page.rows}});
  return page;
}

}  // namespace kiln
