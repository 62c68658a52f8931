// What a piece of work must cost: the operations it does and the fewest bytes it moves through device memory.
#pragma once

namespace kiln {

struct Cost {
  double flops = 0;
  double bytes = 0;
  friend Cost operator+(Cost a, Cost b) { return {a.flops + b.flops, a.bytes + b.bytes}; }
};

enum class Pass { forward, backward };

}  // namespace kiln
