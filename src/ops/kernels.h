// The kernels that a variant says it runs.
#pragma once

#include <string_view>

namespace kiln {

// As base/kernel_log.h calls them, with a space between: beginnings of their names, without kiln's own
// namespace. A row that shares another's function says so here. A kernel that is not on the list must not run
// under the row's name, which a test sees to.
struct Kernels {
  std::string_view forward, backward;

  constexpr Kernels() = default;
  constexpr Kernels(const char* both)
      : forward(both), backward(both) {}  // NOLINT(google-explicit-constructor)
  constexpr Kernels(const char* forward, const char* backward) : forward(forward), backward(backward) {}
};

}  // namespace kiln
