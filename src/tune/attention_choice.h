// Which tiles attention's kernels take for a problem, where that was measured. A choice is written down and
// handed back to the rank that runs the problem; what its numbers mean is the op's business
// (ops/attention/tile_choice.h). A problem without a choice takes the default of the op's tables.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/dtype.h"

namespace kiln {

// What a choice holds for, and for nothing else.
struct AttentionShape {
  std::string variant;  // whose kernels these are
  int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, width = 1;
  DType dtype = DType::bf16;
  bool causal = true;

  std::string str() const;  // "flash_hopper 4 x 12/12 heads x 512/512 x 64 causal bf16"
  friend auto operator<=>(const AttentionShape&, const AttentionShape&) = default;
};

struct AttentionTiles {
  int queries = 0;  // of a block
  int keys = 0;     // of the tiles it walks over
  int stages = 0;   // tiles held at once

  std::string str() const;  // "128 x 176, 2 stages"
  friend bool operator==(const AttentionTiles&, const AttentionTiles&) = default;
};

struct AttentionChoice {
  AttentionShape shape;
  AttentionTiles tiles;
  double us = 0;          // of a forward pass with these tiles, by measurement
  double default_us = 0;  // with the default ones, in the same minute
};

// What a rank goes by.
class AttentionChoices {
 public:
  void use(std::span<const AttentionChoice> choices) {
    for (const AttentionChoice& c : choices) tiles_[c.shape] = c.tiles;
  }
  bool empty() const { return tiles_.empty(); }
  const AttentionTiles* find(const AttentionShape& shape) const {  // null: no choice for it
    const auto found = tiles_.find(shape);
    return found == tiles_.end() ? nullptr : &found->second;
  }

 private:
  std::map<AttentionShape, AttentionTiles> tiles_;
};

}  // namespace kiln
