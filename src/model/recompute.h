// How much of the forward pass is kept for backward: what `--recompute` names.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "model/piece_set.h"

namespace kiln {

// Blocks that follow each other and are kept alike.
struct PlanRun {
  PieceSet again;      // what backward makes again
  int64_t blocks = 0;  // 0: all that are left, of the last run
  friend bool operator==(const PlanRun&, const PlanRun&) = default;
};

struct Recompute {
  enum class Kind {
    none,    // everything is kept
    every,   // the input of every k-th block; backward runs k blocks again at a time
    nested,  // halves of the stack, halves of the halves, ... and the two parts of each block
    plan,    // pieces of each block by name
    budget,  // the fastest of all of these within so many bytes: to be chosen before a model is made
  };
  static constexpr int kMostRuns = 8;

  Kind kind = Kind::none;
  int64_t k = 1;                          // of `every`
  std::array<PlanRun, kMostRuns> runs{};  // of `plan`
  int run_count = 0;
  int64_t budget = 0;  // bytes: peak of the whole step

  // They read like the enumerators they stand for. block: each block's input, which is every(1).
  // NOLINTNEXTLINE(readability-identifier-naming)
  static const Recompute none, block, nested;
  static constexpr Recompute every(int64_t k) { return {.kind = Kind::every, .k = k}; }
  static constexpr Recompute within(int64_t bytes) { return {.kind = Kind::budget, .budget = bytes}; }
  // Runs of no blocks are left out, and neighbours that are alike become one.
  static Recompute plan(std::initializer_list<PlanRun> runs);
  friend bool operator==(const Recompute&, const Recompute&) = default;

  // Of block `index`; nothing unless this is a plan.
  PieceSet again_in(int64_t index) const;
  // Why it cannot be the policy of so many blocks; empty: it can.
  std::string why_not_for(int64_t layers) const;
};

inline constexpr Recompute Recompute::none{.kind = Kind::none};
inline constexpr Recompute Recompute::block{.kind = Kind::every};
inline constexpr Recompute Recompute::nested{.kind = Kind::nested};

// "none", "block", "every:3", "nested", "plan:norms+swiglu*12,none*4", "budget:24GiB".
std::string name_of(const Recompute& r);

// The same names; every:1 is block. Throws Error(usage) that begins with `option`, with the nearest name.
Recompute parse_recompute(std::string_view option, std::string_view text);

// What an option's help says of it.
inline constexpr const char* kRecomputeHelp =
    "activation checkpointing: none, block, every:k, nested, plan:PIECES*BLOCKS,..., or budget:SIZE, the "
    "fastest whose step peaks below it";

}  // namespace kiln
