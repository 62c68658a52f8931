#include "studies/warmup/warmup.h"

#include "studies/gate/gate.h"
#include "studies/place.h"
#include "train/run/tuned.h"

namespace kiln {

namespace {

// After the steps: the check would have warmed up what they are to find cold. Where it fails, they do not
// count.
void check_after(const WarmupRequest& request, StepRow& row) {
  if (!row.ok()) return;
  StepGate gate(request.step.folder, request.progress ? request.progress : [](const std::string&) {});
  if (!check_row(request.step, gate, row)) row.timing = {};
}

}  // namespace

WarmupReport bench_warmup(const WarmupRequest& request) {
  const BenchStepRequest& r = request.step;
  WarmupReport report;
  const LoadWatch load(r.device);
  report.context = request.context_seconds;
  report.device = r.device.str();
  report.row = step_rows(r).front();
  StepRow& row = report.row;
  if (plan_row(r, row)) {
    report.run = run_warmup(rank_for(r, row), row.spec, r.warmups, r.steps, [&](RankContext& ctx) {
      if (r.tuning) use_tuning(ctx, *r.tuning);
    });
    const std::vector<double>& steps = report.run.steps;
    row.timing = summarize({steps.begin() + r.warmups, steps.end()});
    row.timing.warmups = r.warmups;
    row.captured = report.run.captured;
    row.measured = report.run.memory;
  }
  check_after(request, row);
  const DType dtype = policy_of(row.spec.precision).compute;
  const MeasuredPlace place =
      measure_place(r.device, r.threads, {dtype});  // last: it would warm everything up
  report.device_name = place.name;
  report.isa = place.isa;
  report.threads = place.threads;
  row.cache_bytes = cache_bytes(r.device);
  row.best = {place.ceilings.flops.at(dtype).per_second, place.ceilings.copy};
  report.load = load.load();
  return report;
}

}  // namespace kiln
