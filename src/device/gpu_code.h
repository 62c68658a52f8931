// Whether a build holds code that a given GPU can run.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

enum class GpuCode {
  none,     // the first launch would fail
  ptx,      // the driver compiles it at the first start: slow once, and without that GPU's own kernels
  machine,  // ready to run
};

// `archs` as CMake spells them, "90a-real;80": a number is machine code and PTX, "-real" and "-virtual" only
// the one or the other; a letter ties the code to exactly that architecture.
GpuCode gpu_code_for(std::string_view archs, int major, int minor);

// The newest architecture (80, 90) among the code of such a build that the GPU would run; 0 where it runs
// none. Code tied to exactly that GPU ("90a") counts as one more, 91.
int newest_code_for(std::string_view archs, int major, int minor);

// What to do about a GPU for which a build holds no code, in one line.
std::string how_to_build_for(int major, int minor);

}  // namespace kiln
