#include "device/device.h"

#include <array>
#include <charconv>

#include "base/build_info.h"
#include "base/error.h"
#include "base/nearest_name.h"
#include "device/gpu_code.h"
#include "device/gpu_info.h"

namespace kiln {

std::string_view name_of(DeviceType t) {
  constexpr std::string_view kNames[] = {"cpu", "cuda", "meta"};
  return kNames[static_cast<int>(t)];
}

std::string Device::str() const {
  if (type == DeviceType::cuda) return cat("cuda:", static_cast<int>(index));
  if (type == DeviceType::meta && target != DeviceType::cpu) return cat("meta:", name_of(target));
  return std::string(name_of(type));
}

Device Device::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "meta" || text == "meta:cpu") return meta();
  if (text == "meta:cuda") return meta(DeviceType::cuda);
  if (text == "cuda") return cuda(0);
  if (text == "auto") {
    for (const GpuInfo& gpu : list_gpus()) {
      if (gpu_code_for(build_info().cuda_archs, gpu.major, gpu.minor) != GpuCode::none)
        return cuda(gpu.index);
    }
    return cpu();
  }
  if (text.starts_with("cuda:")) {
    std::string_view digits = text.substr(5);
    int n = -1;
    auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    if (problem == std::errc{} && end == digits.data() + digits.size() && n >= 0 && n < 10000) return cuda(n);
  }
  static constexpr std::array<std::string_view, 6> kSpellings = {"cpu",  "cuda",      "cuda:0",
                                                                 "meta", "meta:cuda", "auto"};
  std::string near = nearest_name(text, kSpellings);
  throw Error(cat("unknown device '", text, "'"),
              cat(near.empty() ? "" : cat("did you mean '", near, "'? "),
                  "one of: cpu, cuda, cuda:N, meta, meta:cuda, auto"),
              ErrorKind::usage);
}

}  // namespace kiln
