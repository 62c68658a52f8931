// The tiles of attention by plain multiply-adds (flash_fp32 and the tiled ladder steps), and the shared
// memory they take: the kernels are made for these and the variants' refusals come from the same numbers.
#pragma once

#include <cstddef>

namespace kiln::tiled {

// A block has `rows` of one side (queries, or keys where keys' gradients are made) and walks over the other
// side `columns` at a time. A warp's lanes stand `lanes` across and 32 / lanes down; each makes
// per_lane x columns / lanes scores, and later per_lane x width / lanes channels.
struct TileShape {
  int width;  // channels that fit; narrower heads are padded with zeros
  int rows, columns;
  int lanes, per_lane;
  int blocks;  // on a multiprocessor at a time: as many as shared memory holds, if registers are kept to it

  constexpr int lanes_down() const { return 32 / lanes; }
  constexpr int warp_rows() const { return per_lane * lanes_down(); }
  constexpr int warps() const { return rows / warp_rows(); }
  constexpr int threads() const { return 32 * warps(); }
  constexpr bool tensor_cores() const { return lanes == 4; }  // whose sums lie so
  friend constexpr bool operator==(const TileShape&, const TileShape&) = default;
};

// Two for each width. `small` serves GPUs with less shared memory, and a forward whose large blocks would be
// too few to fill the GPU.
struct TileChoice {
  TileShape large, small;
};

constexpr int tile_width(long D) { return D <= 32 ? 32 : D <= 64 ? 64 : D <= 128 ? 128 : 256; }

// Eight by four or eight by eight scores to a lane: a multiply-add then reads an eighth to a quarter of a
// word from shared memory, and the arithmetic, not the reading, is what takes the time.
constexpr TileChoice forward_tiles(int width) {
  switch (width) {
    case 32:
      return {{32, 128, 64, 8, 8, 2}, {32, 64, 64, 8, 4, 3}};
    case 64:
      return {{64, 64, 64, 16, 8, 3}, {64, 64, 64, 16, 8, 3}};
    case 128:
      return {{128, 128, 64, 16, 8, 1}, {128, 64, 32, 16, 4, 1}};
    default:
      return {{256, 64, 32, 16, 4, 1}, {256, 32, 32, 16, 4, 1}};
  }
}

constexpr TileChoice backward_tiles(int width) {
  switch (width) {
    case 32:
      return {{32, 64, 64, 8, 4, 2}, {32, 64, 64, 8, 4, 2}};
    case 64:
      return {{64, 64, 64, 16, 8, 2}, {64, 64, 32, 16, 4, 1}};
    case 128:
      return {{128, 64, 64, 16, 4, 1}, {128, 32, 32, 16, 4, 1}};
    default:
      return {{256, 32, 32, 16, 4, 1}, {256, 32, 32, 16, 4, 1}};
  }
}

// Of the bf16 ladder steps; their backward has the large tiles above.
constexpr TileShape step_forward_tiles(int width) { return {width, 64, 64, 16, 8, 2}; }

// Of flash_tf32: they fit every GPU since Ampere.
constexpr TileShape tf32_forward_tiles(int width) {
  return width == 64 ? TileShape{64, 128, 32, 4, 4, 3} : TileShape{128, 64, 32, 4, 2, 2};
}
constexpr TileShape tf32_backward_tiles(int width) {
  return width == 64 ? TileShape{64, 64, 32, 4, 2, 2} : TileShape{128, 64, 16, 4, 2, 2};
}

// A kernel is named by types, so its tiles are one.
template <int kWidth, bool kSmall>
struct ForwardTiles {
  static constexpr TileShape kShape = kSmall ? forward_tiles(kWidth).small : forward_tiles(kWidth).large;
};

template <int kWidth>
struct StepForwardTiles {
  static constexpr TileShape kShape = step_forward_tiles(kWidth);
};

template <int kWidth>
struct Tf32ForwardTiles {
  static constexpr TileShape kShape = tf32_forward_tiles(kWidth);
};

template <int kWidth>
struct Tf32BackwardTiles {
  static constexpr TileShape kShape = tf32_backward_tiles(kWidth);
};

template <int kWidth, bool kSmall>
struct BackwardTiles {
  static constexpr TileShape kShape = kSmall ? backward_tiles(kWidth).small : backward_tiles(kWidth).large;
};

// Bytes of a tile in shared memory: each row is followed by 16 bytes, so that rows read together lie in
// different banks.
constexpr std::size_t tile_bytes(const TileShape& s, int rows, std::size_t element) {
  return static_cast<std::size_t>(rows) * (static_cast<std::size_t>(s.width) * element + 16);
}

// A block's scores on their way from the lanes that made them to those that multiply by them.
constexpr std::size_t score_tile_bytes(const TileShape& s) {
  return static_cast<std::size_t>(s.rows) * static_cast<std::size_t>(s.columns + s.lanes) * 4;
}

// A block's sequence, which goes with them.
constexpr std::size_t kSequenceBytes = 32;

constexpr std::size_t forward_bytes(const TileShape& s, std::size_t element) {
  return tile_bytes(s, s.rows + 2 * s.columns, element) + score_tile_bytes(s) + kSequenceBytes;
}

// Two tiles of rows, three of columns; lse and delta of up to two tiles of queries.
constexpr std::size_t backward_bytes(const TileShape& s, std::size_t element) {
  return tile_bytes(s, 2 * s.rows + 3 * s.columns, element) + score_tile_bytes(s) +
         static_cast<std::size_t>(s.rows > 2 * s.columns ? s.rows : 2 * s.columns) * 8;
}

constexpr std::size_t both_bytes(const TileShape& forward, const TileShape& backward, std::size_t element) {
  const std::size_t f = forward_bytes(forward, element), b = backward_bytes(backward, element);
  return f > b ? f : b;
}
constexpr std::size_t fp32_bytes(int width) {  // the least
  return both_bytes(forward_tiles(width).small, backward_tiles(width).small, 4);
}
constexpr std::size_t step_bytes(int width) {
  return both_bytes(step_forward_tiles(width), backward_tiles(width).large, 2);
}
constexpr std::size_t tf32_bytes(int width) {
  return both_bytes(tf32_forward_tiles(width), tf32_backward_tiles(width), 4);
}

}  // namespace kiln::tiled
