// What a GPU did while something was timed on it: its clock, power and temperature, what held the clock back,
// and how many others computed there.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "device/device.h"
#include "perf/timing/nvml.h"

namespace kiln {

struct GpuLoad {
  int samples = 0;
  double least_sm_mhz = 0, median_sm_mhz = 0, most_sm_mhz = 0;  // the last: what the chip may run at
  double watts = 0, most_watts = 0;                             // the highest seen, and the board's limit
  double celsius = 0;                                           // the highest seen
  double unsteady = 0;      // share of the samples that heat or supply held back
  double power_capped = 0;  // share of those at the board's limit of power
  int others = 0;           // processes

  // "2 other processes compute on the GPU"; empty where nothing speaks against its times.
  std::string why_unreliable() const;
};

// A share of the samples: one in twenty is what Timing::stable() forgives.
inline constexpr double kUnsteadyShare = 0.05;

// `own`: the ids of this command's processes. In a container the driver may know them by other numbers; where
// none of them is listed, one of those listed is taken to be it.
GpuLoad load_of(std::span<const GpuSample> samples, std::span<const int> own);

// From its making to load(). A thread asks the driver four times a second, of every GPU, because which one
// CUDA calls `device` is known only once CUDA has been started, and starting it is often what is timed.
class GpuWatch {
 public:
  explicit GpuWatch(std::string library = "libnvidia-ml.so.1");
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  // Nothing where the driver's library is missing or knows no GPU on that bus.
  std::optional<GpuLoad> load(const std::string& bus, std::span<const int> own) const;

 private:
  void watch();
  void sample() const;

  const std::string library_;
  mutable std::mutex mutex_;
  mutable bool opened_ = false;
  mutable std::unique_ptr<Nvml> nvml_;                             // null also where there is none
  mutable std::map<std::string, std::vector<GpuSample>> samples_;  // by bus
  bool done_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace kiln
