#include "device/cpu/amx.h"

#include "device/cpu/intrinsics.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,amx-tile,amx-bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,amx-tile,amx-bf16")
#endif

namespace kiln {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

// A constant in memory, not a local: g++ tells its optimiser that ldtilecfg reads 8 bytes, and the rest of a
// local would never be written. Tiles without a shape fault at first use.
constexpr TileConfig kTiles = {1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

}  // namespace

void amx_enter() { _tile_loadconfig(&kTiles); }

void amx_leave() { _tile_release(); }

// Tiles 0-3: C; 4, 5: A; 6, 7: B.
void amx_product(const AmxProduct& p) {
  const auto a_stride = static_cast<std::size_t>(p.a_row) * 2,
             b_stride = static_cast<std::size_t>(p.b_row) * 4,
             c_stride = static_cast<std::size_t>(p.c_row) * 4;
  for (int64_t n = 0; n < p.N; n += 32) {
    for (int64_t m = 0; m < p.M; m += 32) {
      float *upper = p.c + m * p.c_row + n, *lower = upper + 16 * p.c_row;
      if (p.add) {
        _tile_loadd(0, upper, c_stride);
        _tile_loadd(1, upper + 16, c_stride);
        _tile_loadd(2, lower, c_stride);
        _tile_loadd(3, lower + 16, c_stride);
      } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      for (int64_t k = 0; k < p.K; k += 32) {
        const uint16_t* a = p.a + m * p.a_row + k;
        const uint32_t* b = p.b + k / 2 * p.b_row + n;
        _tile_loadd(4, a, a_stride);
        _tile_loadd(6, b, b_stride);
        _tile_loadd(7, b + 16, b_stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + 16 * p.a_row, a_stride);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_stored(0, upper, c_stride);
      _tile_stored(1, upper + 16, c_stride);
      _tile_stored(2, lower, c_stride);
      _tile_stored(3, lower + 16, c_stride);
    }
  }
}

}  // namespace kiln

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
