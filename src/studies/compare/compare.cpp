#include "studies/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "device/cpu/cpu_features.h"
#include "ops/op_list.h"
#include "perf/model/gemm_padding.h"
#include "perf/model/machine.h"
#include "studies/format.h"
#include "studies/place.h"

namespace kiln {
namespace {

struct Evidence {
  const MeasuredStep& measured;
  const TimeModel& model;
  DType compute;
  CpuIsa isa;
  CallTimes times;

  CallEvidence of(std::size_t i) const {
    const TimedOp& op = measured.ran[i];
    CallEvidence c;
    c.roofline = ms(model.roofline(op.cost));
    c.computing = ms(op.cost.flops / model.rates().flops);
    if (measured.launches == 0) c.padding = c.computing * (tile_ratio(op, compute, isa) - 1);
    c.bytes = op.cost.bytes;
    c.recomputed = step_pass(op) == "recomputed";
    c.copy = kind_of_op(op.op) == OpKind::cast;
    if (model.calibrated()) c.predicted = ms(model.seconds(op));
    c.best = times.best[i];
    c.typical = times.typical[i];
    c.before = times.before[i];
    return c;
  }
};

ComparedOp compared(const OpCalls& group, const Evidence& evidence, const RunFacts& facts) {
  ComparedOp row{std::string(group.op), std::string(group.variant), std::string(group.pass)};
  row.calls = static_cast<int>(group.calls.size());
  row.cost = group.cost;
  std::vector<CallEvidence> calls;
  double computing = 0, predicted = 0;
  for (const std::size_t i : group.calls) {
    calls.push_back(evidence.of(i));
    row.executed_roofline += calls.back().roofline;
    computing += calls.back().computing;
    predicted += calls.back().predicted.value_or(0);
    row.own += calls.back().typical;
  }
  if (2 * computing > row.executed_roofline) row.bound = "compute";
  if (evidence.model.calibrated()) row.predicted = predicted;
  row.gap = explain(calls, facts);
  row.samples = evidence.measured.samples_of(group);
  return row;
}

// The hardware whose rates the rooflines take.
struct KnownRates {
  Hardware hardware;
  std::string from, prediction;
};

// Rates measured in this process, as a hardware file would have them.
Hardware measured_hardware(const CompareReport& report, const MeasuredPlace& place) {
  Hardware h;
  h.name = h.title = report.device_name;
  h.from = "measured with these rows";
  h.measured = true;
  h.bytes_per_s = place.ceilings.copy;
  for (const auto& [dtype, rate] : place.ceilings.flops)
    h.flops.emplace_back(std::string(name_of(dtype)), rate.per_second);
  return h;
}

void note_rates(CompareReport& report, const Hardware& h, const std::vector<MeasuredStep>& steps) {
  report.copy = h.copy_rate();
  report.rates_measured = false;
  for (const MeasuredStep& step : steps) {
    const std::string dtype(name_of(policy_of(step.row.spec.precision).compute));
    if (std::none_of(report.flops.begin(), report.flops.end(),
                     [&](const NamedRate& r) { return r.name == dtype; }))
      report.flops.push_back({dtype, h.flops_of(dtype)});
  }
}

void note_here(CompareReport& report, const Device& device, int threads) {
  const MeasuredPlace place = find_place(device, threads);
  report.device = device.str();
  report.device_name = place.name;
  report.isa = place.isa;
  report.threads = place.threads;
}

// --hw, else the calibration of this machine, else what is measured now.
KnownRates known_rates(const CompareRequest& q, CompareReport& report,
                       const std::vector<MeasuredStep>& steps) {
  const BenchStepRequest& r = q.measure.step;
  KnownRates known;
  if (!q.hardware.empty()) {
    note_here(report, r.device, r.threads);
    known.hardware = find_hardware(q.hardware);
    known.from = fmt::format("Rates of the rooflines: {}, {}.", known.hardware.title, known.hardware.from);
    if (!known.hardware.calibration)
      known.prediction = fmt::format(
          "No predicted times: {} has no calibration; `kiln doctor --calibrate` measures that of "
          "the machine it runs on.",
          known.hardware.title);
    note_rates(report, known.hardware, steps);
    return known;
  }
  KnownMachine machine = known_machine(r.folder.empty() ? "." : r.folder, machine_of(r.device, r.threads));
  if (machine.hardware && machine.hardware->calibration) {
    note_here(report, r.device, r.threads);
    known.hardware = std::move(*machine.hardware);
    known.from = fmt::format("Rates of the rooflines: {}, {}.", known.hardware.title, known.hardware.from);
    if (!machine.note.empty()) known.prediction = fmt::format("Predicted times: {}.", machine.note);
    note_rates(report, known.hardware, steps);
    return known;
  }
  std::vector<StepRow> rows;
  for (const MeasuredStep& step : steps) rows.push_back(step.row);
  known.hardware = measured_hardware(report, note_place(report, r.device, r.threads, rows));
  known.prediction = fmt::format("No predicted times: {}.", machine.note);
  return known;
}

}  // namespace

double ComparedStep::executed_roofline() const {
  double sum = 0;
  for (const ComparedOp& op : ops) sum += op.executed_roofline;
  return sum;
}

void explain_step(ComparedStep& step, const TimeModel& model, DType compute, CpuIsa isa) {
  const MeasuredStep& measured = step.measured;
  step.rates = model.rates();
  step.facts.calibrated = model.calibrated();
  const Evidence evidence{measured, model, compute, isa, call_times(measured.steps)};
  const StepEdges edges{evidence.times.outside, evidence.times.residual};
  std::vector<CallEvidence> all;
  for (std::size_t i = 0; i < measured.ran.size(); ++i) all.push_back(evidence.of(i));
  step.gap = explain(all, step.facts, edges);
  for (const OpCalls& group : group_calls(measured.ran))
    step.ops.push_back(compared(group, evidence, step.facts));
  std::stable_sort(step.ops.begin(), step.ops.end(),
                   [](const ComparedOp& a, const ComparedOp& b) { return a.gap.measured > b.gap.measured; });
  ComparedOp outside{kOutside};
  outside.gap = explain({}, step.facts, edges);
  for (const StepCalls& s : measured.steps) outside.samples.push_back(s.outside());
  step.ops.push_back(std::move(outside));
  if (!model.calibrated()) return;
  const StepTime time = model.step(measured.ran, measured.row.captured);
  step.predicted = ms(time.total());
  step.unknown = ms(time.unknown);
}

CompareReport compare_steps(std::span<const CompareRequest> requests, const Progress& progress) {
  std::vector<MeasureRequest> measures;
  for (const CompareRequest& q : requests) measures.push_back(q.measure);
  const LoadWatch load(requests.front().measure.step.device);
  std::vector<MeasuredStep> measured = measure_steps(measures, /*by_turns=*/true, progress);
  CompareReport report;
  report.load = load.load();
  if (measured.empty()) return report;
  progress("measuring rates");
  const BenchStepRequest& r = requests.front().measure.step;
  const KnownRates known = known_rates(requests.front(), report, measured);
  report.rates_from = known.from;
  report.prediction = known.prediction;
  const CpuIsa isa = cpu_isa_from_environment();
  for (MeasuredStep& m : measured) {
    ComparedStep step{std::move(m)};
    const DType compute = policy_of(step.measured.row.spec.precision).compute;
    step.facts = {.steps = static_cast<int>(step.measured.steps.size()),
                  .cache = cache_bytes(r.device),
                  .kernels = step.measured.launches > 0,
                  .load = step.measured.load,
                  .processors = static_cast<int>(std::thread::hardware_concurrency())};
    if (step.timed()) {
      step.facts.fixed_ms = smallest_call_ms(rank_for(r, step.measured.row));
      explain_step(step, TimeModel(known.hardware, compute), compute, isa);
    }
    report.steps.push_back(std::move(step));
  }
  progress("");
  return report;
}

}  // namespace kiln
