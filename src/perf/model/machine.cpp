#include "perf/model/machine.h"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>

#include "base/build_info.h"
#include "base/thread_pool.h"
#include "device/cpu/cpu_features.h"
#include "device/gpu_info.h"

namespace kiln {
namespace {

constexpr const char* kCalibrate = "kiln doctor --calibrate";

std::string gpu_name(int index, const std::string& otherwise) {
  for (const GpuInfo& gpu : list_gpus()) {
    if (gpu.index == index) return gpu.name;
  }
  return otherwise;
}

// Why its times are not of the machine here; empty: they are.
std::string why_foreign(const Calibration& c, const Machine& here) {
  if (here.kind != DeviceType::cpu) return {};
  if (c.isa != here.isa) return fmt::format("with {}; this run has {}", c.isa, here.isa);
  if (c.threads != here.threads)
    return fmt::format("with {} threads; this run has {}", c.threads, here.threads);
  return {};
}

KnownMachine checked(Hardware hardware, std::string path, const Machine& here) {
  KnownMachine known{std::move(hardware), std::move(path), {}};
  std::optional<Calibration>& calibration = known.hardware->calibration;
  const std::string name = known.path.empty() ? "hardware/" + known.hardware->name : known.path;
  if (!calibration) {
    known.note = fmt::format("{} has no calibration; `{}` measures one", name, kCalibrate);
  } else if (const std::string why = why_foreign(*calibration, here); !why.empty()) {
    known.note = fmt::format("{} was calibrated {}; `{}` measures anew", name, why, kCalibrate);
    calibration.reset();
  } else if (calibration->build != build_info().build_id) {
    known.note = fmt::format("{} was calibrated by kiln {}, and this is {}; `{}` renews it", name,
                             calibration->build, build_info().build_id, kCalibrate);
  }
  return known;
}

}  // namespace

Machine machine_of(const Device& device, int threads) {
  if (device.target != DeviceType::cpu)
    return {.kind = device.target, .device = gpu_name(device.index, device.str())};
  return {DeviceType::cpu, cpu_model(), std::string(name_of(cpu_isa_from_environment())),
          threads > 0 ? threads : ThreadPool::available_threads()};
}

std::string hardware_file_name(const Machine& here) {
  std::string slug;
  for (const char c : here.device) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) != 0)
      slug += static_cast<char>(std::tolower(letter));
    else if (!slug.empty() && slug.back() != '-')
      slug += '-';
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return fmt::format("hardware-{}.json", slug.empty() ? "unknown" : slug);
}

KnownMachine known_machine(const std::string& folder, const Machine& here) {
  const std::string path = (std::filesystem::path(folder) / hardware_file_name(here)).string();
  if (std::filesystem::exists(path)) return checked(find_hardware(path), path, here);
  for (const std::string& name : hardware_names()) {
    Hardware h = find_hardware(name);
    if (h.kind == here.kind && h.device == here.device) return checked(std::move(h), {}, here);
  }
  return {std::nullopt,
          {},
          fmt::format("there is no hardware file of {}; `{}` measures one", here.device, kCalibrate)};
}

}  // namespace kiln
