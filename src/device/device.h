// Which device a tensor lives on. `meta` runs the real schedule with shapes and a counting allocator and no
// data; it imitates a real device (`target`), so that it takes the same variants and predicts the same bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/cpu/isa.h"

namespace kiln {

enum class DeviceType : uint8_t { cpu, cuda, meta };

std::string_view name_of(DeviceType t);

struct Device {
  DeviceType type = DeviceType::cpu;
  DeviceType target = DeviceType::cpu;  // differs from `type` only for meta
  int16_t index = 0;                    // which GPU

  static Device cpu() { return {DeviceType::cpu, DeviceType::cpu, 0}; }
  static Device cuda(int index = 0) {
    return {DeviceType::cuda, DeviceType::cuda, static_cast<int16_t>(index)};
  }
  static Device meta(DeviceType target = DeviceType::cpu) { return {DeviceType::meta, target, 0}; }

  // "cpu", "cuda", "cuda:1", "meta", "meta:cuda"; throws Error naming the nearest spelling otherwise.
  // "auto" is the first GPU this build holds code for, else the CPU.
  static Device parse(std::string_view text);

  bool is_meta() const { return type == DeviceType::meta; }
  std::string str() const;
  friend bool operator==(const Device&, const Device&) = default;
};

// What a variant may ask about the device it would run on.
struct DeviceTraits {
  DeviceType type = DeviceType::cpu;
  int compute_capability = 0;  // 90 for sm_90; 0 on the CPU
  CpuIsa isa = CpuIsa::plain;  // what CPU kernels may use
};

}  // namespace kiln
