#include "device/gpu_code.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace kiln {
namespace {

constexpr int kOldestArch = 75;

GpuCode code_of_one(std::string_view arch, int major, int minor) {
  int number = 0;
  const auto [end, error] = std::from_chars(arch.data(), arch.data() + arch.size(), number);
  if (error != std::errc{}) return GpuCode::none;
  std::string_view rest(end, static_cast<std::size_t>(arch.data() + arch.size() - end));
  const bool exact = rest.starts_with('a');
  const bool family = rest.starts_with('f');
  if (exact || family) rest.remove_prefix(1);

  const int wanted = 10 * major + minor;
  if (exact && number != wanted) return GpuCode::none;
  const bool same_generation = number / 10 == major && number <= wanted;
  if (rest != "-virtual" && same_generation) return GpuCode::machine;
  if (rest != "-real" && number <= wanted && (!family || same_generation)) return GpuCode::ptx;
  return GpuCode::none;
}

}  // namespace

GpuCode gpu_code_for(std::string_view archs, int major, int minor) {
  GpuCode best = GpuCode::none;
  while (!archs.empty()) {
    const auto end = archs.find(';');
    best = std::max(best, code_of_one(archs.substr(0, end), major, minor));
    archs.remove_prefix(end == std::string_view::npos ? archs.size() : end + 1);
  }
  return best;
}

std::string how_to_build_for(int major, int minor) {
  const int number = 10 * major + minor;
  if (number < kOldestArch)
    return cat("it is too old: CUDA 13 compiles for sm_", kOldestArch, " and newer; use --device cpu");
  return cat("build with `make cuda CUDA_ARCHS=", number, "`");
}

}  // namespace kiln
