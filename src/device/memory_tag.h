// What a piece of memory is for. Peaks are kept per tag, printed, traced, and compared with the meta run.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kiln {

enum class Tag : uint8_t { param, master, grad, optim, activation, workspace, comm, data };
inline constexpr int kTagCount = 8;

constexpr std::string_view name_of(Tag t) {
  constexpr std::string_view kNames[kTagCount] = {"param",      "master",    "grad", "optim",
                                                  "activation", "workspace", "comm", "data"};
  return kNames[static_cast<int>(t)];
}

template <class T>
struct PerTag {
  std::array<T, kTagCount> values{};
  T& operator[](Tag t) { return values[static_cast<int>(t)]; }
  const T& operator[](Tag t) const { return values[static_cast<int>(t)]; }
  friend bool operator==(const PerTag&, const PerTag&) = default;
};

}  // namespace kiln
