// What else a machine does while something is timed on it. A time says little where other processes, the
// hypervisor or a cgroup's CPU limit took part of the cores meanwhile; the row then says so.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "perf/timing/gpu_load.h"

namespace kiln {

struct HostLoad {
  double seconds = 0;               // how long was watched; 0: nothing was
  int cpus = 1;                     // online
  double load_before = 0;           // the system's average over the minute before
  double others = 0;                // cores kept busy by processes that are not this command's
  double steal = 0;                 // cores that the hypervisor gave to other machines
  double throttled = 0;             // cores that a cgroup's CPU limit took away
  std::optional<GpuLoad> gpu = {};  // where something was timed on one, and its driver tells

  // "load 5.9 on 2 cores, 1.3 of them used by others meanwhile: timings unreliable"; empty where nothing
  // speaks against them.
  std::string why_unreliable() const;
};

// A share of the cores that is in use elsewhere and makes timings unreliable. Timing::stable() takes a mean
// for known at 5 %: what can move it by more makes that worthless.
inline constexpr double kBusyShare = 0.05;
// Below this time the system's counters, of 10 ms a tick, cannot tell 5 %: the load before the start decides.
inline constexpr double kLeastWatched = 0.5;

// /proc/stat, its first line and its "cpuN" lines; seconds since the start of the system.
struct CpuClock {
  double busy = 0, steal = 0;
  int cpus = 0;
};
std::optional<CpuClock> parse_proc_stat(std::string_view text, double ticks_per_second);

// The first figure of /proc/loadavg.
std::optional<double> parse_load_average(std::string_view text);

// Seconds in cpu.stat that the group's threads were held back: throttled_usec (cgroup v2), throttled_time
// (v1).
std::optional<double> parse_throttled(std::string_view text);

// CPU seconds in /proc/PID/stat, with those of its children that have ended.
struct ProcessSeconds {
  int parent = 0;
  double own = 0, ended_children = 0;
};
std::optional<ProcessSeconds> parse_process_seconds(std::string_view text, double ticks_per_second);

// The counters at one moment.
struct LoadSample {
  double time = 0;  // seconds, of any clock
  CpuClock cpu;
  double own = 0;  // CPU seconds of this command's processes
  double throttled = 0, load = 0;
};
LoadSample read_load();

HostLoad load_between(const LoadSample& before, const LoadSample& after);

// From its making to load(), of the host and of the GPU that is timed.
class LoadWatch {
 public:
  explicit LoadWatch(const Device& device);
  HostLoad load() const;

 private:
  LoadSample before_;
  Device device_;
  std::optional<GpuWatch> gpu_;
};

}  // namespace kiln
