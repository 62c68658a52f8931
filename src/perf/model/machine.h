// The machine in front of us and what is known of it: its hardware file, measured by `kiln doctor
// --calibrate` into the folder of results, or one of the program's own.
#pragma once

#include <optional>
#include <string>

#include "perf/model/hardware.h"

namespace kiln {

struct Machine {
  DeviceType kind = DeviceType::cpu;
  std::string device = {};  // its name: the processor's or the GPU's
  std::string isa = {};     // of a CPU
  int threads = 0;          // likewise
};

// The device of a run, whose threads may be 0: as many as the process may use.
Machine machine_of(const Device& device, int threads);

// "hardware-nvidia-h200.json"
std::string hardware_file_name(const Machine& here);

struct KnownMachine {
  std::optional<Hardware> hardware;  // none: there is no file of this machine
  std::string path;                  // of the file it is from; empty: the program's own, or none
  std::string note;  // why its times are bounds, or may be off, and what renews them; or empty
};

// Error for a file that cannot be read. A calibration of another machine, instruction set or number of
// threads is left out, and the note says so.
KnownMachine known_machine(const std::string& folder, const Machine& here);

}  // namespace kiln
