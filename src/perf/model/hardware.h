// What a device can do, from a hardware file: those under hardware/ are part of the program, a user's own is
// a path. Rates are a data sheet's, for dense matmuls with fp32 accumulation, and beside them what was
// measured on such a device, where it was. Nothing here needs the device.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "device/device.h"
#include "perf/model/calibration.h"

namespace kiln {

// FLOP/s by the name of a dtype: fp32, tf32, bf16, fp16, fp8.
using MatmulRates = std::vector<std::pair<std::string, double>>;

struct HardwareLink {
  std::string name;
  double bytes_per_s = 0;  // of a device to others, in one direction
  double latency = 0;      // seconds a message
};

struct Hardware {
  std::string name, title;
  std::string from;    // where the figures are from
  std::string device;  // what such a device calls itself; empty: not known
  DeviceType kind = DeviceType::cpu;
  bool runs_kiln = true;  // else only calculated with
  bool measured = false;  // all of it, on such a device
  double memory = 0;      // bytes
  double bytes_per_s = 0;
  MatmulRates flops;
  std::optional<double> measured_bytes_per_s;
  MatmulRates measured_flops;
  double cache = 0;    // bytes; 0: not known
  int processors = 0;  // SMs or cores; 0: not known
  std::optional<HardwareLink> link;
  // Measured on such a device; or, of one that is only known from its data sheet, on another, whose distance
  // from its own roofline it is given.
  std::optional<Calibration> calibration;
  std::string calibrated_on;  // the name of that other; empty: itself
  MatmulRates curve_flops;    // of that other: its calls are that far from what these rates allow
  double curve_bytes_per_s = 0;

  // The measured rate where there is one. Error where the file says nothing of the dtype, with what it has.
  double flops_of(std::string_view dtype) const;
  double copy_rate() const { return measured_bytes_per_s.value_or(bytes_per_s); }
};

// `name` is one of hardware_names(), or the path of a file. Error(usage) for neither, with the nearest name,
// and for a file that says something impossible.
Hardware find_hardware(const std::string& name);
Hardware read_hardware(std::string_view text, const std::string& source);
std::string hardware_text(const Hardware& hardware);  // read_hardware() gives the same
const std::vector<std::string>& hardware_names();

// The files the program carries, by name: generated from hardware/*.json.
struct HardwareFile {
  std::string_view name, text;
};
const std::vector<HardwareFile>& hardware_files();

}  // namespace kiln
