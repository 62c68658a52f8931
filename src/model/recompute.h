// How much of the forward pass is kept for backward: what `--recompute` names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln {

struct Recompute {
  enum class Kind {
    none,    // everything is kept
    every,   // the input of every k-th block; backward runs k blocks again at a time
    nested,  // halves of the stack, halves of the halves, ... and the two parts of each block
  };
  Kind kind = Kind::none;
  int64_t k = 1;  // of `every`

  // They read like the enumerators they stand for. block: each block's input, which is every(1).
  // NOLINTNEXTLINE(readability-identifier-naming)
  static const Recompute none, block, nested;
  static constexpr Recompute every(int64_t k) { return {Kind::every, k}; }
  friend bool operator==(const Recompute&, const Recompute&) = default;
};

inline constexpr Recompute Recompute::none{Kind::none, 1};
inline constexpr Recompute Recompute::block{Kind::every, 1};
inline constexpr Recompute Recompute::nested{Kind::nested, 1};

// "none", "block", "every:3", "nested".
std::string name_of(const Recompute& r);

// The same names; every:1 is block. Throws Error(usage) that begins with `option`, with the nearest name.
Recompute parse_recompute(std::string_view option, std::string_view text);

}  // namespace kiln
