#include "base/build_info.h"

#include "kiln_build_config.h"
#include "kiln_build_id.h"

namespace kiln {

const BuildInfo& build_info() {
  static constexpr BuildInfo kInfo{
      .version = KILN_VERSION,
      .build_id = KILN_BUILD_ID,
#ifdef __clang__
      .compiler = "clang " __clang_version__,
#else
      .compiler = "g++ " __VERSION__,
#endif
      .build_type = KILN_BUILD_TYPE,
      .sanitizers = KILN_SANITIZE,
      .cuda = KILN_CUDA != 0,
      .cuda_archs = KILN_CUDA != 0 ? KILN_CUDA_ARCHS : "",
  };
  return kInfo;
}

}  // namespace kiln
