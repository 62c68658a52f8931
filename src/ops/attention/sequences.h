// Offsets of the sequences of a varlen batch: their rows, and their tiles among those of all.
//
// Kernels that keep something for each tile give sequence b's tiles of n rows the places from cu[b] / n + b
// on. That leaves each as many places as it has tiles, is known without a sum over the sequences before, and
// wastes at most one place a sequence.
#pragma once

#include "ops/attention/attention.h"

namespace kiln {

// `count` rows from `first` on.
struct SequenceRows {
  int first, count;
};

// Of sequence b. Offsets that are wrong give wrong rows, but none outside the tensors.
KILN_HD inline SequenceRows rows_of_sequence(const int32_t* cu, int b, int64_t rows, int64_t longest) {
  const int all = static_cast<int>(rows), most = static_cast<int>(longest);
  const int begin = cu[b] < 0 ? 0 : cu[b], first = begin < all ? begin : all;
  const int end = cu[b + 1] < all ? cu[b + 1] : all, count = end > first ? end - first : 0;
  return {first, count < most ? count : most};
}

// The place of its first tile of `per_tile` rows, and how many places all sequences have.
KILN_HD inline int first_place(int first_row, int b, int per_tile) { return first_row / per_tile + b; }
KILN_HD inline int64_t tile_places(int64_t rows, int64_t sequences, int64_t per_tile) {
  return rows / per_tile + sequences;
}

// The sequence whose places this one is among; of the places behind its last tile, likewise.
KILN_HD inline int sequence_at(const int32_t* cu, int sequences, int per_tile, int place) {
  int low = 0, high = sequences;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first_place(cu[middle], middle, per_tile) <= place ? low : high) = middle;
  }
  return low;
}

}  // namespace kiln
