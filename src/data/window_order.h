// The order in which an epoch visits its windows: a permutation of 0..count-1 that is computed place by
// place. A list would take 8 bytes a window, gigabytes for large sets, and could not be entered in the middle
// for free.
//
// A Feistel network over an even number of bits, keyed by seed and epoch, is a permutation of a power of
// four; walking on from places beyond `count` until one falls below it makes it one of `count`.
#pragma once

#include <cstdint>

#include "base/rng.h"

namespace kiln {

class WindowOrder {
 public:
  WindowOrder(uint64_t count, uint64_t seed);

  // Which window is at `place` of `epoch`.
  uint64_t at(uint64_t epoch, uint64_t place) const;

 private:
  uint64_t turn(uint64_t epoch, uint64_t place) const;

  uint64_t count_;
  uint32_t half_bits_ = 1;
  PhiloxKey key_;
};

}  // namespace kiln
