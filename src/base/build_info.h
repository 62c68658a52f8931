// Version, build and compiler: the facts printed by `kiln --version`, by `kiln doctor` and in every result
// row.
#pragma once

namespace kiln {

struct BuildInfo {
  const char* version;
  const char* build_id;  // the commit; "-dirty.1a2b3c4d" where sources differed from it; "unknown" outside a
                         // repository
  const char* compiler;  // of the host code
  const char* build_type;  // Release, Debug
  const char* sanitizers;  // empty in ordinary builds
  bool cuda;
  const char* cuda_archs;  // as configured; empty without CUDA
};

const BuildInfo& build_info();

}  // namespace kiln
