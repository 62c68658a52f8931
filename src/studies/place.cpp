#include "studies/place.h"

#include "device/cpu/cpu_features.h"
#include "device/gpu_info.h"
#include "studies/variant_check.h"

namespace kiln {

std::string device_name(const Device& device) {
  if (device.type == DeviceType::cpu) return cpu_model();
  std::string why;
  for (const GpuInfo& gpu : list_gpus(&why)) {
    if (gpu.index == device.index) return gpu.name;
  }
  return device.str();
}

namespace {

MeasuredPlace place_of(RankContext& ctx, const Device& device) {
  return {device_name(device), std::string(name_of(ctx.traits().isa)), ctx.pool().threads(), {}};
}

}  // namespace

MeasuredPlace find_place(const Device& device, int threads) {
  RankContext ctx(options_for(device, threads, 0));
  return place_of(ctx, device);
}

MeasuredPlace measure_place(const Device& device, int threads, const std::vector<DType>& dtypes) {
  RankContext ctx(options_for(device, threads, 0));
  MeasuredPlace place = place_of(ctx, device);
  place.ceilings = CeilingWatch(ctx, dtypes).finish();
  return place;
}

}  // namespace kiln
