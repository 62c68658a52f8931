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

template <class F>
void for_each_arch(std::string_view archs, F f) {
  while (!archs.empty()) {
    const auto end = archs.find(';');
    f(archs.substr(0, end));
    archs.remove_prefix(end == std::string_view::npos ? archs.size() : end + 1);
  }
}

}  // namespace

GpuCode gpu_code_for(std::string_view archs, int major, int minor) {
  GpuCode best = GpuCode::none;
  for_each_arch(archs, [&](std::string_view one) { best = std::max(best, code_of_one(one, major, minor)); });
  return best;
}

int newest_code_for(std::string_view archs, int major, int minor) {
  // Machine code is taken before PTX, however much newer that is.
  const GpuCode kind = gpu_code_for(archs, major, minor);
  int newest = 0;
  if (kind == GpuCode::none) return newest;
  for_each_arch(archs, [&](std::string_view one) {
    if (code_of_one(one, major, minor) != kind) return;
    int number = 0;
    (void)std::from_chars(one.data(), one.data() + one.size(), number);
    newest =
        std::max(newest, number + (one.find('a') != std::string_view::npos && one.find('a') < 4 ? 1 : 0));
  });
  return newest;
}

std::string how_to_build_for(int major, int minor) {
  const int number = 10 * major + minor;
  if (number < kOldestArch)
    return cat("it is too old: CUDA 13 compiles for sm_", kOldestArch, " and newer; use --device cpu");
  return cat("build with `make cuda CUDA_ARCHS=", number, "`");
}

}  // namespace kiln
