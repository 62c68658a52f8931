// How a model that was trained on short texts is told the positions of longer ones: its rotary frequencies,
// changed as Hugging Face's config.json says it under rope_scaling (or rope_parameters).
//
//   linear   all positions divided by the factor
//   dynamic  a larger theta, from the sequence's length on that the model was trained on: theta grows with
//   the length llama3   slow pairs divided by the factor, quick ones left as they are, and a passage between
//   the two
#pragma once

#include <cmath>
#include <cstdint>

#include "base/hd.h"

namespace kiln {

struct RopeScaling {
  enum class Kind : uint8_t { none, linear, dynamic, llama3 };
  Kind kind = Kind::none;
  double factor = 1;
  int64_t trained = 0;  // positions: of dynamic and llama3
  double slow_turns = 1,
         quick_turns = 4;  // in `trained` positions, of llama3: low_freq_factor, high_freq_factor

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

// Radians a position by which pair `pair` of a head of D values is turned. `length`: of the sequence so far.
KILN_HD inline double rope_frequency(double theta, int64_t D, int64_t pair, int64_t length,
                                     const RopeScaling& s) {
  if (s.kind == RopeScaling::Kind::dynamic && length > s.trained && D > 2) {
    const double longer = static_cast<double>(length) / static_cast<double>(s.trained);
    theta *= pow(s.factor * longer - (s.factor - 1), static_cast<double>(D) / static_cast<double>(D - 2));
  }
  const double plain = pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(D));
  if (s.kind == RopeScaling::Kind::linear) return plain / s.factor;
  if (s.kind != RopeScaling::Kind::llama3) return plain;
  constexpr double kTurn = 6.283185307179586476925;
  const double turns = static_cast<double>(s.trained) * plain / kTurn;
  if (turns < s.slow_turns) return plain / s.factor;
  if (turns > s.quick_turns) return plain;
  const double quick = (turns - s.slow_turns) / (s.quick_turns - s.slow_turns);
  return (1 - quick) * plain / s.factor + quick * plain;
}

}  // namespace kiln
