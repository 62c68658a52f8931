// Counts that must not be mixed up carry their unit in their type at the allocator's and communicator's
// interfaces.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

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

// "5GB", "512 MiB", "1000": a whole number of bytes with a unit, powers of 1000 (KB, MB, GB, TB) or of 1024
// (KiB, ...). Throws Error(usage); `what` opens it ("--max-shard").
Bytes parse_bytes(std::string_view text, std::string_view what);

constexpr std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace kiln
