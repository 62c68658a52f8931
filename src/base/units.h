// Counts that must not be mixed up carry their unit in their type at the allocator's and communicator's
// doors.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

namespace kiln {

struct Bytes {
  std::size_t value = 0;
  friend auto operator<=>(const Bytes&, const Bytes&) = default;
  friend Bytes operator+(Bytes a, Bytes b) { return {a.value + b.value}; }
};

struct Elements {
  int64_t value = 0;
  friend auto operator<=>(const Elements&, const Elements&) = default;
};

// "12.5 MiB": for people; JSON carries plain byte counts.
std::string human(Bytes b);

constexpr std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace kiln
