// How much of a model is compiled: what `--compile` names.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

enum class CompileMode : uint8_t {
  none,       // every op runs its own kernels
  regions,    // residual sum and norm, rotary embedding, SwiGLU: each a region
  model,      // also the softmax of composed attention, and the loss of a head that is a matmul of its own
  automatic,  // regions where the device compiles, else none
};

std::string_view name_of(CompileMode m);
std::vector<std::string_view> compile_mode_names();
// Throws Error(usage) that begins with `option`, with the nearest name.
CompileMode parse_compile(std::string_view option, std::string_view text);

inline constexpr const char* kCompileHelp =
    "fuse the ops between matmuls into generated kernels: {}; auto: regions where the device can";

}  // namespace kiln
