#include "perf/timing/gpu_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace kiln {
namespace {

using std::chrono::milliseconds;

// The driver's library takes its own locks: first after the start that may be timed, then seldom.
constexpr milliseconds kFirst{500}, kEvery{250};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

int strangers(const GpuSample& sample, std::span<const int> own) {
  const auto ours = std::count_if(sample.pids.begin(), sample.pids.end(), [&](int pid) {
    return std::find(own.begin(), own.end(), pid) != own.end();
  });
  const auto all = static_cast<int>(sample.pids.size());
  return std::max(0, all - std::max(1, static_cast<int>(ours)));
}

}  // namespace

GpuLoad load_of(std::span<const GpuSample> samples, std::span<const int> own) {
  GpuLoad load;
  load.samples = static_cast<int>(samples.size());
  if (samples.empty()) return load;
  std::vector<double> clocks;
  int unsteady = 0, capped = 0;
  for (const GpuSample& s : samples) {
    if (s.sm_mhz > 0) clocks.push_back(s.sm_mhz);
    load.most_sm_mhz = std::max(load.most_sm_mhz, s.most_sm_mhz);
    load.watts = std::max(load.watts, s.watts);
    load.most_watts = std::max(load.most_watts, s.most_watts);
    load.celsius = std::max(load.celsius, s.celsius);
    load.others = std::max(load.others, strangers(s, own));
    unsteady += (s.held_back & kUnsteady) != 0;
    capped += (s.held_back & kPowerCap) != 0;
  }
  if (!clocks.empty()) load.least_sm_mhz = *std::min_element(clocks.begin(), clocks.end());
  load.median_sm_mhz = median(std::move(clocks));
  load.unsteady = static_cast<double>(unsteady) / load.samples;
  load.power_capped = static_cast<double>(capped) / load.samples;
  return load;
}

std::string GpuLoad::why_unreliable() const {
  std::string text;
  if (others > 0)
    text = fmt::format("{} other process{} on the GPU", others, others == 1 ? " computes" : "es compute");
  if (unsteady > kUnsteadyShare)
    text += fmt::format(
        "{}heat or the supply held the GPU's clock back in {:.0f} % of the samples "
        "({:.0f} of {:.0f} MHz, {:.0f} C)",
        text.empty() ? "" : "; ", 100 * unsteady, median_sm_mhz, most_sm_mhz, celsius);
  return text;
}

GpuWatch::GpuWatch(std::string library) : library_(std::move(library)), thread_([this] { watch(); }) {}

GpuWatch::~GpuWatch() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void GpuWatch::watch() {
  std::unique_lock lock(mutex_);
  for (milliseconds pause = kFirst; !wake_.wait_for(lock, pause, [this] { return done_; }); pause = kEvery)
    sample();
}

// Under the lock.
void GpuWatch::sample() const {
  if (!opened_) nvml_ = Nvml::open(library_);
  opened_ = true;
  if (!nvml_) return;
  for (const Nvml::Gpu& gpu : nvml_->gpus()) samples_[gpu.bus].push_back(nvml_->read(gpu));
}

std::optional<GpuLoad> GpuWatch::load(const std::string& bus, std::span<const int> own) const {
  const std::lock_guard lock(mutex_);
  if (samples_.empty()) sample();  // of what was over before the thread's first
  const auto found = samples_.find(bus);
  return found == samples_.end() ? std::nullopt : std::optional(load_of(found->second, own));
}

}  // namespace kiln
