#include "data/window_order.h"

#include <bit>

#include "base/error.h"

namespace kiln {

WindowOrder::WindowOrder(uint64_t count, uint64_t seed)
    : count_(count), key_(philox_key(seed, "data.order")) {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  if (count == 0 || count > kMost) throw Error(cat("an order of ", count, " windows; expected 1 to ", kMost));
  const int bits = std::bit_width(count - 1);
  half_bits_ = static_cast<uint32_t>(bits < 2 ? 1 : (bits + 1) / 2);
}

uint64_t WindowOrder::turn(uint64_t epoch, uint64_t place) const {
  constexpr uint32_t kRounds = 6;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = place >> half_bits_, right = place & mask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const Philox4 r = philox(key_, Philox4{static_cast<uint32_t>(right), round, static_cast<uint32_t>(epoch),
                                           static_cast<uint32_t>(epoch >> 32)});
    const uint64_t next = left ^ (r.x & mask);  // half_bits_ is at most 31
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

uint64_t WindowOrder::at(uint64_t epoch, uint64_t place) const {
  if (place >= count_) throw Error(cat("place ", place, " in an order of ", count_, " windows"));
  uint64_t window = turn(epoch, place);
  while (window >= count_) window = turn(epoch, window);
  return window;
}

}  // namespace kiln
