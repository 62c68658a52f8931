// bf16 without widening, for CPUs that multiply bf16 pairs: AVX-512's dot product (14 x 32 tile) and AMX (32
// x 32 as four 16 x 16 tiles). Both read B as pairs of steps of K side by side: b[k / 2][column][2]. The dot
// product reads A the same way; AMX reads A as rows of 32 steps. One core, 2048^3: the dot product gives 200
// GFLOP/s on a Zen 4 (fp32: 107) but 83 on a Sapphire Rapids (fp32: 145), which has AMX for this.
#include "device/cpu/intrinsics.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "device/cpu/amx.h"
#include "ops/gemm/gemm_kernel.h"

#ifdef __clang__
#pragma clang attribute push(                                                                   \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")
#endif

namespace kiln {
namespace {

constexpr int64_t kDotRows = 14, kColumns = 32, kAmxRows = 32, kAmxDepth = 32;

// Transposes 16 x 16 32-bit values (each a bf16 pair).
inline void transpose(__m512i (&r)[16]) {
  __m512i t[16], u[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    u[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    u[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    u[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(u[i], u[i + 4], 0x88),
                  b = _mm512_shuffle_i32x4(u[i], u[i + 4], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(u[i + 8], u[i + 12], 0x88),
                  d = _mm512_shuffle_i32x4(u[i + 8], u[i + 12], 0xdd);
    r[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

inline __mmask16 lanes16(int64_t n) {
  return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
}
inline __mmask32 lanes32(int64_t n) { return n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (1u << n) - 1; }

// 16 rows by 16 pairs of steps as rows of pairs, whichever way the source lies. Row i holds steps k .. k+31
// of source row i; outside the source: zero.
inline void load_block(const PanelSource& s, int64_t i0, int64_t count, int64_t k0, int64_t depth,
                       __m512i (&r)[16]) {
  const auto* src = static_cast<const uint16_t*>(s.data);
  if (s.k_stride == 1) {
    for (int64_t i = 0; i < 16; ++i) {
      r[i] = i0 + i < count ? _mm512_maskz_loadu_epi16(lanes32(depth - k0), src + (i0 + i) * s.stride + k0)
                            : _mm512_setzero_si512();
    }
    return;
  }
  const __mmask16 rows = lanes16(count - i0);
  for (int64_t p = 0; p < 16; ++p) {  // pairs as columns first
    const int64_t k = k0 + 2 * p;
    const __m256i even =
        k < depth ? _mm256_maskz_loadu_epi16(rows, src + k * s.k_stride + i0) : _mm256_setzero_si256();
    const __m256i odd = k + 1 < depth ? _mm256_maskz_loadu_epi16(rows, src + (k + 1) * s.k_stride + i0)
                                      : _mm256_setzero_si256();
    r[p] = _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
  }
  transpose(r);
}

// The next step overwrites what a vector spills past a narrow panel's width; the last is cut to size. (Masked
// stores cost Zen 4 several times a plain one.)
template <int64_t Width>
inline void store_pairs(uint32_t* panel, int64_t p, int64_t pairs, int64_t i, __m512i v) {
  static_assert(Width % 16 == 0 || (Width < 16 && 2 * Width >= 16));
  if (Width % 16 == 0 || p + 1 < pairs) {
    _mm512_storeu_si512(panel + p * Width + i, v);
  } else {
    _mm512_mask_storeu_epi32(panel + p * Width + i, lanes16(Width), v);
  }
}

// panel[k / 2][Width] of pairs.
template <int64_t Width>
void pack_pairs(const PanelSource& s, int64_t count, int64_t depth, void* panels, int64_t panel_bytes) {
  auto panel_at = [&](int64_t first) {
    return reinterpret_cast<uint32_t*>(static_cast<std::byte*>(panels) + first / Width * panel_bytes);
  };
  const int64_t pairs = (depth + 1) / 2;
  if (s.k_stride != 1) {  // rows side by side already: interleave two steps, through all panels
    const auto* src = static_cast<const uint16_t*>(s.data);
    for (int64_t p = 0; p < pairs; ++p) {
      for (int64_t first = 0; first < count; first += Width) {
        for (int64_t i = 0; i < Width; i += 16) {
          const __mmask16 rows = lanes16(std::min(count - first, Width) - i);
          const uint16_t* at = src + 2 * p * s.k_stride + first + i;
          const __m256i even = _mm256_maskz_loadu_epi16(rows, at);
          const __m256i odd =
              2 * p + 1 < depth ? _mm256_maskz_loadu_epi16(rows, at + s.k_stride) : _mm256_setzero_si256();
          const __m512i both =
              _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
          store_pairs<Width>(panel_at(first), p, pairs, i, both);
        }
      }
    }
    return;
  }
  for (int64_t first = 0; first < count; first += Width) {
    uint32_t* out = panel_at(first);
    for (int64_t i = 0; i < Width; i += 16) {
      for (int64_t p = 0; p < pairs; p += 16) {
        __m512i block[16];
        load_block(s, first + i, count, 2 * p, depth, block);
        transpose(block);
        for (int64_t q = 0; q < 16 && p + q < pairs; ++q) {
          store_pairs<Width>(out, p + q, pairs, i, block[q]);
        }
      }
    }
  }
}

void dot_multiply(int64_t depth, const void* a_panel, const void* b_panel, float* c, int64_t c_row, bool add,
                  const void* ahead) {
  const auto* a = static_cast<const uint32_t*>(a_panel);
  const auto* b = static_cast<const uint32_t*>(b_panel);
  __m512 left[kDotRows], right[kDotRows];
#pragma GCC unroll 16
  for (int i = 0; i < kDotRows; ++i) left[i] = right[i] = _mm512_setzero_ps();
  const auto* soon = static_cast<const uint32_t*>(ahead);
  for (int64_t k = 0; k < depth; k += 2) {
    __builtin_prefetch(soon, 0, 2);
    const auto b0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b));
    const auto b1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + 16));
#pragma GCC unroll 16
    for (int i = 0; i < kDotRows; ++i) {
      const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a[i])));
      left[i] = _mm512_dpbf16_ps(left[i], x, b0);
      right[i] = _mm512_dpbf16_ps(right[i], x, b1);
    }
    a += kDotRows;
    b += kColumns;
    soon += kColumns / 4;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kDotRows; ++i) {
    float* row = c + i * c_row;
    _mm512_storeu_ps(row, add ? _mm512_add_ps(_mm512_loadu_ps(row), left[i]) : left[i]);
    _mm512_storeu_ps(row + 16, add ? _mm512_add_ps(_mm512_loadu_ps(row + 16), right[i]) : right[i]);
  }
}

// --- AMX

// panel[k / 32][32 rows][32 steps]: each half of 16 rows is a tile.
void amx_pack_a(const PanelSource& s, int64_t count, int64_t depth, void* panels, int64_t panel_bytes) {
  for (int64_t k = 0; k < depth; k += kAmxDepth) {
    for (int64_t first = 0; first < count; first += 16) {
      __m512i block[16];
      load_block(s, first, count, k, depth, block);
      auto* out =
          reinterpret_cast<uint16_t*>(static_cast<std::byte*>(panels) + first / kAmxRows * panel_bytes) +
          k * kAmxRows + first % kAmxRows * kAmxDepth;
      for (int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * kAmxDepth, block[i]);
    }
    if (count % kAmxRows != 0 && count % kAmxRows <= 16) {  // the last panel's lower tile has no rows
      std::byte* last = static_cast<std::byte*>(panels) + count / kAmxRows * panel_bytes;
      std::memset(last + (k * kAmxRows + 16 * kAmxDepth) * 2, 0, 16 * kAmxDepth * 2);
    }
  }
}

void amx_pack_b(const PanelSource& s, int64_t count, int64_t depth, void* panels, int64_t panel_bytes) {
  pack_pairs<kColumns>(s, count, depth, panels, panel_bytes);
  const int64_t padded = (depth + kAmxDepth - 1) / kAmxDepth * kAmxDepth;
  for (int64_t first = 0; first < count; first += kColumns) {
    auto* panel =
        reinterpret_cast<uint32_t*>(static_cast<std::byte*>(panels) + first / kColumns * panel_bytes);
    for (int64_t p = (depth + 1) / 2; p < padded / 2; ++p) std::memset(panel + p * kColumns, 0, kColumns * 4);
  }
}

// Tiles 0-3: C; 4, 5: A; 6, 7: B.
void amx_multiply(int64_t depth, const void* a_panel, const void* b_panel, float* c, int64_t c_row, bool add,
                  const void* ahead) {
  const auto* a = static_cast<const std::byte*>(a_panel);
  const auto* b = static_cast<const std::byte*>(b_panel);
  const auto* soon = static_cast<const std::byte*>(ahead);
  const auto c_stride = static_cast<std::size_t>(c_row) * sizeof(float);
  float* lower = c + 16 * c_row;
  if (add) {
    _tile_loadd(0, c, c_stride);
    _tile_loadd(1, c + 16, c_stride);
    _tile_loadd(2, lower, c_stride);
    _tile_loadd(3, lower + 16, c_stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t k = 0; k < depth; k += kAmxDepth) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, kColumns * 4);
    _tile_loadd(7, b + 64, kColumns * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + 1024, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
#pragma GCC unroll 8
    for (int line = 0; line < 8; ++line) __builtin_prefetch(soon + line * 64, 0, 2);
    a += 2048;
    b += 2048;
    soon += 512;
  }
  _tile_stored(0, c, c_stride);
  _tile_stored(1, c + 16, c_stride);
  _tile_stored(2, lower, c_stride);
  _tile_stored(3, lower + 16, c_stride);
}

}  // namespace

const GemmKernel& bf16_dot_gemm_kernel() {
  static constexpr GemmKernel kKernel = {
      "bf16_dot",           kDotRows,     kColumns, 768,    2, 2, true, pack_pairs<kDotRows>,
      pack_pairs<kColumns>, dot_multiply, nullptr,  nullptr};
  return kKernel;
}

const GemmKernel& bf16_amx_gemm_kernel() {
  static constexpr GemmKernel kKernel = {"bf16_amx", kAmxRows,   kColumns,     2048,      kAmxDepth, 2, false,
                                         amx_pack_a, amx_pack_b, amx_multiply, amx_enter, amx_leave};
  return kKernel;
}

}  // namespace kiln

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
