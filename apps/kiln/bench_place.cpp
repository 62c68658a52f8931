#include "kiln/bench_place.h"

#include "device/cpu/cpu_features.h"
#include "device/gpu_info.h"
#include "kiln/bench_check.h"

namespace kiln::cli {

std::string device_name(const Device& device) {
  if (device.type == DeviceType::cpu) return cpu_model();
  std::string why;
  for (const GpuInfo& gpu : list_gpus(&why)) {
    if (gpu.index == device.index) return gpu.name;
  }
  return device.str();
}

MeasuredPlace measure_place(const Device& device, int threads, const std::vector<DType>& dtypes) {
  RankContext ctx(options_for(device, threads, 0));
  MeasuredPlace place;
  place.name = device_name(device);
  place.isa = name_of(ctx.traits().isa);
  place.threads = ctx.pool().threads();
  place.ceilings = CeilingWatch(ctx, dtypes).finish();
  return place;
}

}  // namespace kiln::cli
