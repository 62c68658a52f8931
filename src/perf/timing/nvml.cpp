#include "perf/timing/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace kiln {
namespace {

// The library's interface, as far as it is used here; its header comes with a part of the toolkit that few
// install.
using Status = int;  // 0: done
constexpr Status kDone = 0;
constexpr unsigned kSmClock = 1, kCoreTemperature = 0;

struct PciInfo {
  std::array<char, 16> bus_legacy;
  unsigned domain, bus, device, pci_device, pci_subsystem;
  std::array<char, 32> bus_id;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

struct Nvml::Functions {
  Status (*init)() = nullptr;
  Status (*shutdown)() = nullptr;
  Status (*count)(unsigned*) = nullptr;
  Status (*by_index)(unsigned, void**) = nullptr;
  Status (*pci)(void*, PciInfo*) = nullptr;
  Status (*clock)(void*, unsigned, unsigned*) = nullptr;
  Status (*most_clock)(void*, unsigned, unsigned*) = nullptr;
  Status (*power)(void*, unsigned*) = nullptr;
  Status (*power_limit)(void*, unsigned*) = nullptr;
  Status (*temperature)(void*, unsigned, unsigned*) = nullptr;
  Status (*reasons)(void*, unsigned long long*) = nullptr;
  Status (*processes)(void*, unsigned*, ProcessInfo*) = nullptr;
};

namespace {

// The function's newest name that this library has; the older one stayed in drivers before it.
template <class F>
bool find(void* library, F& f, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    f = reinterpret_cast<F>(::dlsym(library, name));
    if (f != nullptr) return true;
  }
  return false;
}

double value(Status (*f)(void*, unsigned*), void* gpu, double unit) {
  unsigned x = 0;
  return f != nullptr && f(gpu, &x) == kDone ? unit * x : 0;
}

double value(Status (*f)(void*, unsigned, unsigned*), void* gpu, unsigned which) {
  unsigned x = 0;
  return f != nullptr && f(gpu, which, &x) == kDone ? x : 0;
}

// "00000000:18:00.0" there, "0000:18:00.0" in CUDA.
std::string cuda_bus(std::string bus) {
  const std::size_t colon = bus.find(':');
  if (colon != std::string::npos && colon > 4) bus.erase(0, colon - 4);
  std::transform(bus.begin(), bus.end(), bus.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return bus;
}

}  // namespace

std::unique_ptr<Nvml> Nvml::open(const std::string& name) {
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  auto f = std::make_unique<Functions>();
  const bool usable = find(library, f->init, {"nvmlInit_v2"}) &&
                      find(library, f->shutdown, {"nvmlShutdown"}) &&
                      find(library, f->count, {"nvmlDeviceGetCount_v2"}) &&
                      find(library, f->by_index, {"nvmlDeviceGetHandleByIndex_v2"}) &&
                      find(library, f->pci, {"nvmlDeviceGetPciInfo_v3"});
  if (!usable || f->init() != kDone) {
    ::dlclose(library);
    return nullptr;
  }
  find(library, f->clock, {"nvmlDeviceGetClockInfo"});
  find(library, f->most_clock, {"nvmlDeviceGetMaxClockInfo"});
  find(library, f->power, {"nvmlDeviceGetPowerUsage"});
  find(library, f->power_limit, {"nvmlDeviceGetEnforcedPowerLimit"});
  find(library, f->temperature, {"nvmlDeviceGetTemperature"});
  find(library, f->reasons,
       {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
  find(library, f->processes, {"nvmlDeviceGetComputeRunningProcesses_v3"});
  std::unique_ptr<Nvml> nvml(new Nvml(library, std::move(f)));
  nvml->list();
  return nvml;
}

Nvml::Nvml(void* library, std::unique_ptr<Functions> functions)
    : library_(library), f_(std::move(functions)) {}

Nvml::~Nvml() {
  f_->shutdown();
  ::dlclose(library_);
}

void Nvml::list() {
  unsigned count = 0;
  if (f_->count(&count) != kDone) return;
  for (unsigned i = 0; i < count; ++i) {
    Gpu gpu;
    PciInfo pci{};
    if (f_->by_index(i, &gpu.handle) != kDone || f_->pci(gpu.handle, &pci) != kDone) continue;
    const auto end = std::find(pci.bus_id.begin(), pci.bus_id.end(), '\0');
    gpu.bus = cuda_bus({pci.bus_id.begin(), end});
    gpus_.push_back(std::move(gpu));
  }
}

GpuSample Nvml::read(const Gpu& gpu) const {
  GpuSample s;
  s.sm_mhz = value(f_->clock, gpu.handle, kSmClock);
  s.most_sm_mhz = value(f_->most_clock, gpu.handle, kSmClock);
  s.watts = value(f_->power, gpu.handle, 1e-3);
  s.most_watts = value(f_->power_limit, gpu.handle, 1e-3);
  s.celsius = value(f_->temperature, gpu.handle, kCoreTemperature);
  unsigned long long reasons = 0;
  if (f_->reasons != nullptr && f_->reasons(gpu.handle, &reasons) == kDone) s.held_back = reasons;
  std::array<ProcessInfo, 64> found{};
  unsigned count = found.size();
  if (f_->processes != nullptr && f_->processes(gpu.handle, &count, found.data()) == kDone) {
    for (unsigned i = 0; i < std::min<unsigned>(count, found.size()); ++i)
      s.pids.push_back(static_cast<int>(found.at(i).pid));
  }
  return s;
}

}  // namespace kiln
