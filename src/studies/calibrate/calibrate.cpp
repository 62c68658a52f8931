#include "studies/calibrate/calibrate.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/error.h"
#include "base/stop.h"
#include "device/cpu/host_limits.h"
#include "device/gpu_info.h"
#include "perf/timing/cpu_clock.h"
#include "rows/result_log.h"
#include "studies/gate/gate.h"
#include "studies/place.h"
#include "studies/ranks/allreduce.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCheckedShape = 1;  // a small one

double memory_of(const Device& device) {
  for (const GpuInfo& gpu : device.type == DeviceType::cuda ? list_gpus() : std::vector<GpuInfo>()) {
    if (gpu.index == device.index) return static_cast<double>(gpu.total_bytes);
  }
  const HostLimits limits = read_host_limits();
  return static_cast<double>(std::min(limits.memory_total, limits.cgroup_memory.value_or(UINT64_MAX)));
}

int processors_of(const Device& device, int threads) {
  for (const GpuInfo& gpu : device.type == DeviceType::cuda ? list_gpus() : std::vector<GpuInfo>()) {
    if (gpu.index == device.index) return gpu.sm_count;
  }
  return threads;
}

// The machine with its rates, before anything of a step is known.
Hardware measured_rates(const CalibrateRequest& request, const Machine& machine) {
  const MeasuredPlace place = measure_place(request.device, request.threads, {DType::f32, DType::bf16});
  Hardware h;
  h.name = std::filesystem::path(hardware_file_name(machine)).stem().string().substr(sizeof("hardware-") - 1);
  h.title = h.device = machine.device;
  h.kind = machine.kind;
  h.measured = true;
  h.from = fmt::format("measured by kiln doctor --calibrate, {}", utc_now().substr(0, 10));
  h.memory = memory_of(request.device);
  h.bytes_per_s = place.ceilings.copy;
  for (const auto& [dtype, rate] : place.ceilings.flops)
    h.flops.emplace_back(std::string(name_of(dtype)), rate.per_second);
  h.cache = cache_bytes(request.device);
  h.processors = processors_of(request.device, place.threads);
  return h;
}

// Ranks as threads of one process share the cores, and pass tensors through memory: a link of this machine.
std::vector<CalibratedLink> measured_links(const CalibrateRequest& request) {
  BenchAllReduceRequest r;
  r.sizes = {{std::size_t{1} << 16}, {std::size_t{1} << 20}, {std::size_t{1} << 23}, {std::size_t{1} << 25}};
  r.ranks = {2, 4};
  r.transports = {"threads"};
  r.device = request.device;
  r.samples = 10;
  r.seed = request.seed;
  r.stop = request.stop;
  std::vector<CalibratedLink> links;
  for (const AllReduceFit& f : bench_allreduce(r, [](const std::string&) {}).fits)
    links.push_back({f.group.transport, f.group.ranks, f.fit.alpha, 1 / f.fit.beta});
  return links;
}

// What is to be timed computes what it should: the ops and steps of a model of the design, in every format
// and preset. The others differ in size alone.
void check_steps(const CalibrateRequest& request, const std::function<void(const std::string&)>& progress) {
  StepGate gate("", progress);
  for (const CalibrationStep& step : calibration_steps(request.device)) {
    if (step.shape != kCheckedShape) continue;
    const StepSpec spec = step.spec(request.device.type);
    const RankOptions rank = step.rank(request.device, request.threads, request.seed);
    const GateReport report = gate.check({spec, rank, plan_step(spec, rank).ops, {}, request.stop});
    if (!report.passed())
      throw Error(fmt::format("nothing is calibrated: the gate of {} {} has not passed: {}",
                              name_of(step.precision), step.preset, report.reason));
  }
}

}  // namespace

CalibrateReport calibrate(const CalibrateRequest& request,
                          const std::function<void(const std::string&)>& progress) {
  if (request.device.is_meta())
    throw Error("meta runs no kernels, so there is nothing to calibrate", "use --device cpu or cuda",
                ErrorKind::usage);
  const auto begun = Clock::now();
  const LoadWatch load(request.device);
  const Machine machine = machine_of(request.device, request.threads);
  CalibrateReport report;
  progress("checking the steps");
  report.stopped = !done_unless_stopped([&] { check_steps(request, progress); });
  if (report.stopped) return report;
  progress("measuring rates");
  report.hardware = measured_rates(request, machine);
  const Samples samples = take_samples({.device = request.device,
                                        .hardware = report.hardware,
                                        .threads = request.threads,
                                        .seed = request.seed,
                                        .seconds = request.seconds,
                                        .stop = request.stop},
                                       progress);
  report.steps = static_cast<int>(samples.steps.size());
  report.skipped = samples.skipped;
  report.stopped = samples.stopped;
  if (report.stopped) return report;
  if (samples.steps.empty())
    throw Error(fmt::format("{} seconds are too few to time a single model", request.seconds),
                "give --seconds 60 or more", ErrorKind::usage);
  progress("fitting");
  report.drift = drift_of(samples.steps);
  report.own = leave_one_out(report.hardware, samples.steps);
  Calibration c = fitted(samples.steps);
  c.date = utc_now().substr(0, 10);
  c.build = build_info().build_id;
  if (machine.kind == DeviceType::cpu) {
    c.isa = machine.isa;
    c.threads = machine.threads;
    progress("measuring the clock and collectives");
    c.clock_hz = cpu_clock_hz(machine.threads);
    c.links = measured_links(request);
  }
  report.hardware.calibration = std::move(c);
  report.load = load.load();
  report.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  report.stopped = request.stop && request.stop();
  return report;
}

std::string write_calibration(const std::string& folder, const CalibrateReport& report) {
  std::filesystem::create_directories(folder);
  const Machine machine{report.hardware.kind, report.hardware.device, {}, 0};
  const std::string path = (std::filesystem::path(folder) / hardware_file_name(machine)).string();
  write_file_atomically(path, hardware_text(report.hardware));
  return path;
}

}  // namespace kiln
