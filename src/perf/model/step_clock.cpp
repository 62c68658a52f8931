#include "perf/model/step_clock.h"

#include <algorithm>

#include "base/error.h"
#include "perf/model/machine.h"

namespace kiln {
namespace {

// The middle of what such machines have. Only ratios count: what an operation costs beside a byte.
Hardware nominal(DeviceType kind, int threads) {
  Hardware h;
  h.name = h.title = "nominal rates";
  h.kind = kind;
  if (kind == DeviceType::cpu) {
    const double one = 4e10 * std::max(1, threads);
    h.bytes_per_s = 1.5e10;
    h.flops = {{"fp32", one}, {"fp64", one / 2}, {"bf16", one}, {"fp16", one}};
  } else {
    h.bytes_per_s = 2e12;
    h.flops = {{"fp32", 5e13}, {"fp64", 2.5e13}, {"tf32", 3e14}, {"bf16", 6e14}, {"fp16", 6e14}};
  }
  return h;
}

bool has_rate(const Hardware& h, DType compute) {
  try {
    return h.flops_of(name_of(compute)) > 0;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

StepClock StepClock::for_compute(DType compute) const {
  const Hardware& h = model.hardware();
  return {TimeModel(h, has_rate(h, compute) ? compute : DType::f32), nominal, from, note};
}

std::optional<StepTime> StepClock::predict(std::span<const TimedOp> ops, DType compute, bool graph) const {
  if (!calibrated() || !has_rate(model.hardware(), compute)) return std::nullopt;
  const TimeModel here(model.hardware(), compute);
  if (!here.calibrated()) return std::nullopt;
  return here.step(ops, graph);
}

StepClock clock_of(const std::string& folder, const Device& device, int threads, DType compute) {
  const Machine here = machine_of(device, threads);
  KnownMachine known = known_machine(folder, here);
  if (known.hardware && has_rate(*known.hardware, compute)) {
    std::string from = known.path.empty() ? "hardware/" + known.hardware->name : known.path;
    return {TimeModel(std::move(*known.hardware), compute), false, std::move(from), std::move(known.note)};
  }
  const std::string why =
      known.hardware ? cat(known.hardware->name, " has no rate in ", name_of(compute)) : known.note;
  return {TimeModel(nominal(here.kind, here.threads), compute), true, "nominal rates", why};
}

StepClock clock_of(Hardware hardware, DType compute) {
  std::string from = "hardware " + hardware.name;
  return {TimeModel(std::move(hardware), compute), false, std::move(from), {}};
}

}  // namespace kiln
