#include "perf/timing/host_load.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "device/cpu/host_limits.h"
#include "device/gpu_info.h"
#include "dist/launch/rank_env.h"

namespace kiln {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Takes the next word of a line off `text`; empty at its end.
std::string_view next_word(std::string_view& text) {
  const std::size_t from = std::min(text.find_first_not_of(" \t"), text.size());
  const std::size_t to = std::min(text.find_first_of(" \t\n", from), text.size());
  const std::string_view word = text.substr(from, to - from);
  text.remove_prefix(to);
  return word;
}

std::optional<double> number(std::string_view word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || error != std::errc{} || end != word.data() + word.size()) return {};
  return value;
}

double ticks_per_second() { return static_cast<double>(std::max(1L, ::sysconf(_SC_CLK_TCK))); }

double seconds_of(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

double of_this_process() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    ::getrusage(who, &used);
    sum += seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
  }
  return sum;
}

struct OwnProcess {
  int pid = 0;
  double seconds = 0;  // of a CPU
};

// Other ranks of the run are no strangers: they are its launcher's children too.
std::vector<OwnProcess> launcher_and_ranks() {
  std::vector<OwnProcess> all;
  std::error_code failed;
  for (std::filesystem::directory_iterator it("/proc", failed), end; !failed && it != end;
       it.increment(failed)) {
    const auto pid = number(it->path().filename().string());
    if (!pid) continue;
    const auto p = parse_process_seconds(read_text(it->path() / "stat"), ticks_per_second());
    const auto id = static_cast<int>(*pid);
    if (p && (id == ::getppid() || p->parent == ::getppid())) all.push_back({id, p->own + p->ended_children});
  }
  return all;
}

double of_all_ranks() {
  double sum = 0;
  for (const OwnProcess& p : launcher_and_ranks()) sum += p.seconds;
  return sum;
}

std::vector<int> own_pids() {
  if (!read_rank_env().launched()) return {::getpid()};
  std::vector<int> pids;
  for (const OwnProcess& p : launcher_and_ranks()) pids.push_back(p.pid);
  return pids;
}

double throttled_seconds() {
  const std::string groups = read_text("/proc/self/cgroup");
  for (const auto& [controller, mount] :
       {std::pair{"", "/sys/fs/cgroup"}, std::pair{"cpu", "/sys/fs/cgroup/cpu"}}) {
    const auto path = parse_cgroup_path(groups, controller);
    if (!path) continue;
    if (const auto held = parse_throttled(read_text(std::string(mount) + std::string(*path) + "/cpu.stat")))
      return *held;
  }
  return 0;
}

}  // namespace

std::optional<CpuClock> parse_proc_stat(std::string_view text, double ticks) {
  CpuClock clock;
  bool total = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view name = next_word(line);
    if (!name.starts_with("cpu")) continue;
    if (name != "cpu") {
      ++clock.cpus;
      continue;
    }
    // user nice system idle iowait irq softirq steal; guests' time is in user's already.
    std::array<double, 8> t{};
    for (double& value : t) {
      const auto read = number(next_word(line));
      if (!read) return {};
      value = *read / ticks;
    }
    clock.busy = t[0] + t[1] + t[2] + t[5] + t[6];
    clock.steal = t[7];
    total = true;
  }
  if (!total || clock.cpus == 0) return {};
  return clock;
}

std::optional<double> parse_load_average(std::string_view text) { return number(next_word(text)); }

std::optional<double> parse_throttled(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view name = next_word(line);
    const double unit = name == "throttled_usec" ? 1e-6 : name == "throttled_time" ? 1e-9 : 0;
    if (unit == 0) continue;
    const auto value = number(next_word(line));
    return value ? std::optional(*value * unit) : std::nullopt;
  }
  return {};
}

std::optional<ProcessSeconds> parse_process_seconds(std::string_view text, double ticks) {
  const std::size_t name = text.rfind(") ");  // the name before it may hold anything
  if (name == std::string_view::npos) return {};
  text.remove_prefix(name + 2);
  (void)next_word(text);  // the state
  ProcessSeconds p;
  const auto parent = number(next_word(text));
  if (!parent) return {};
  p.parent = static_cast<int>(*parent);
  for (int i = 0; i < 9; ++i) (void)next_word(text);  // to utime, the 14th of all
  std::array<double, 4> t{};
  for (double& value : t) {
    const auto read = number(next_word(text));
    if (!read) return {};
    value = *read / ticks;
  }
  p.own = t[0] + t[1];
  p.ended_children = t[2] + t[3];
  return p;
}

LoadSample read_load() {
  LoadSample s;
  s.time = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  s.cpu = parse_proc_stat(read_text("/proc/stat"), ticks_per_second()).value_or(CpuClock{});
  s.own = read_rank_env().launched() ? of_all_ranks() : of_this_process();
  s.throttled = throttled_seconds();
  s.load = parse_load_average(read_text("/proc/loadavg")).value_or(0);
  return s;
}

HostLoad load_between(const LoadSample& before, const LoadSample& after) {
  HostLoad load;
  load.cpus = std::max(1, after.cpu.cpus);
  load.load_before = before.load;
  load.seconds = after.time - before.time;
  if (load.seconds <= 0) return load;
  const auto cores = [&](double a, double b) { return std::max(0.0, (b - a) / load.seconds); };
  load.others = std::max(0.0, cores(before.cpu.busy, after.cpu.busy) - cores(before.own, after.own));
  load.steal = cores(before.cpu.steal, after.cpu.steal);
  load.throttled = cores(before.throttled, after.throttled);
  return load;
}

LoadWatch::LoadWatch(const Device& device) : before_(read_load()), device_(device) {
  if (device.type == DeviceType::cuda) gpu_.emplace();
}

HostLoad LoadWatch::load() const {
  HostLoad load = load_between(before_, read_load());
  if (gpu_) load.gpu = gpu_->load(pci_bus_of(device_.index), own_pids());
  return load;
}

std::string HostLoad::why_unreliable() const {
  if (seconds <= 0) return {};
  const double most = kBusyShare * cpus;
  const std::string on = fmt::format("load {:.1f} on {} core{}", load_before, cpus, cpus == 1 ? "" : "s");
  std::string text;
  if (seconds < kLeastWatched) {
    if (load_before > cpus) text = on + " before the start";
  } else if (others > most) {
    text = fmt::format("{}, {:.1f} of them used by others meanwhile", on, others);
  }
  const auto add = [&](double lost, std::string_view who) {
    if (lost > most) text += fmt::format("{}{} took {:.1f} cores", text.empty() ? "" : "; ", who, lost);
  };
  add(steal, "the hypervisor");
  add(throttled, "the cgroup's CPU limit");
  if (const std::string why = gpu ? gpu->why_unreliable() : ""; !why.empty())
    text += (text.empty() ? "" : "; ") + why;
  return text.empty() ? text : text + ": timings unreliable";
}

}  // namespace kiln
