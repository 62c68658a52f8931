// The driver's library of a GPU's state, libnvidia-ml, loaded where it is present: clocks, power, temperature
// and who computes there. It starts no CUDA, so a watch with it does not warm up what is timed cold.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace kiln {

// One GPU at one moment; 0 where the driver does not tell.
struct GpuSample {
  double sm_mhz = 0, most_sm_mhz = 0;
  double watts = 0, most_watts = 0;
  double celsius = 0;
  uint64_t held_back = 0;      // bits of the driver's reasons for a lower clock
  std::vector<int> pids = {};  // of the processes that compute there
};

// Reasons that come and go with cooling and supply: a time under them is not one of the chip.
inline constexpr uint64_t kHardwareSlowdown = 0x8, kSoftwareThermal = 0x20, kHardwareThermal = 0x40,
                          kPowerBrake = 0x80;
inline constexpr uint64_t kUnsteady = kHardwareSlowdown | kSoftwareThermal | kHardwareThermal | kPowerBrake;
// The board's own limit of power: every large matmul meets it, on a cool chip too.
inline constexpr uint64_t kPowerCap = 0x4;

class Nvml {
 public:
  // Null where there is none, or no driver answers it.
  static std::unique_ptr<Nvml> open(const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  struct Gpu {
    std::string bus;  // "0000:18:00.0", as CUDA writes it
    void* handle = nullptr;
  };
  const std::vector<Gpu>& gpus() const { return gpus_; }
  GpuSample read(const Gpu& gpu) const;

 private:
  struct Functions;
  Nvml(void* library, std::unique_ptr<Functions> functions);
  void list();

  void* library_;
  std::unique_ptr<Functions> f_;
  std::vector<Gpu> gpus_;
};

}  // namespace kiln
