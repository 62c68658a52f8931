// The fp32 kernel at one vector width. C tile: 14 x 2 vectors on AVX-512 (28 of 32 registers), 6 x 2 on AVX2
// (12 of 16), 2 x 2 plain. Per step of K: 2 loads of B, MR broadcasts of A, 2 MR multiply-adds.

#if KILN_SIMD_LEVEL == 2
static constexpr int kRowsOfTile = 14;
#elif KILN_SIMD_LEVEL == 1
static constexpr int kRowsOfTile = 6;
#else
static constexpr int kRowsOfTile = 2;
#endif
static constexpr int kColumnsOfTile = 2 * F32::kWidth;

static void multiply(int64_t depth, const void* a_panel, const void* b_panel, float* c, int64_t c_row,
                     bool add, const void* ahead) {
  constexpr int W = F32::kWidth;
  const float* a = static_cast<const float*>(a_panel);
  const float* b = static_cast<const float*>(b_panel);
  const float* soon = static_cast<const float*>(ahead);
  F32 left[kRowsOfTile], right[kRowsOfTile];
#pragma GCC unroll 16
  for (int i = 0; i < kRowsOfTile; ++i) left[i] = right[i] = zero_vector();
  for (int64_t k = 0; k < depth; ++k) {
    __builtin_prefetch(soon, 0, 2);  // 2-3 % on Zen 4
    const F32 b0 = load(b), b1 = load(b + W);
#pragma GCC unroll 16
    for (int i = 0; i < kRowsOfTile; ++i) {
      const F32 x = broadcast(a[i]);
      left[i] = fma(x, b0, left[i]);
      right[i] = fma(x, b1, right[i]);
    }
    a += kRowsOfTile;
    b += kColumnsOfTile;
    soon += kColumnsOfTile / 4;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRowsOfTile; ++i) {
    float* row = c + i * c_row;
    store(row, add ? load(row) + left[i] : left[i]);
    store(row + W, add ? load(row + W) + right[i] : right[i]);
  }
}

// --- packing: panel[k][0..Width) = source(i, k), widened to fp32

// A panel may be narrower than a vector: then a whole vector is stored all the same, because the next step of
// K overwrites what spilled into its place, and only the last step is cut to size. (Masked stores cost Zen 4
// several times a plain one.)
template <int Width>
static inline void store_step(float* panel, int64_t k, int64_t depth, int64_t i, F32 v) {
  constexpr int W = F32::kWidth;
  static_assert(Width % W == 0 || (Width < W && 2 * Width >= W));
  float* out = panel + k * Width + i;
  if (Width % W == 0 || k + 1 < depth) {
    store(out, v);
  } else {
    store_some(out, v, Width);
  }
}

// Steps of K are side by side in memory: transpose blocks of W rows by W steps.
template <int Width, class T>
static void pack_k_dense(const T* src, int64_t stride, int64_t count, int64_t depth, float* panel) {
  constexpr int W = F32::kWidth;
  for (int64_t i = 0; i < Width; i += W) {
    const int64_t rows = Width - i < W ? Width - i : W, there = count - i;
    int64_t k = 0;
    if (there >= rows) {
      for (; k + W <= depth; k += W) {
        F32 block[W];
#pragma GCC unroll 16
        for (int r = 0; r < W; ++r) block[r] = load(src + (i + (r < rows ? r : 0)) * stride + k);
        transpose_square(block);
#pragma GCC unroll 16
        for (int s = 0; s < W; ++s) store_step<Width>(panel, k + s, depth, i, block[s]);
      }
    }
    for (; k < depth; k += W) {
      const int steps = depth - k < W ? static_cast<int>(depth - k) : W;
      F32 block[W];
      for (int r = 0; r < W; ++r) {
        block[r] = r < there ? load_some(src + (i + r) * stride + k, steps) : zero_vector();
      }
      transpose_square(block);
      for (int s = 0; s < steps; ++s) store_step<Width>(panel, k + s, depth, i, block[s]);
    }
  }
}

// Rows (columns) are side by side: copy, one step of K after another through all panels.
template <int Width, class T>
static void pack_rows_dense(const T* src, int64_t k_stride, int64_t count, int64_t depth, char* panels,
                            int64_t panel_bytes) {
  constexpr int W = F32::kWidth;
  for (int64_t k = 0; k < depth; ++k) {
    const T* step = src + k * k_stride;
    char* panel = panels;
    for (int64_t first = 0; first < count; first += Width, panel += panel_bytes) {
      for (int64_t i = 0; i < Width; i += W) {
        const int64_t there = count - first - i;
        const F32 v = there >= W  ? load(step + first + i)
                      : there > 0 ? load_some(step + first + i, static_cast<int>(there))
                                  : zero_vector();
        store_step<Width>(reinterpret_cast<float*>(panel), k, depth, i, v);
      }
    }
  }
}

template <int Width, class T>
static void pack_typed(const PanelSource& s, int64_t count, int64_t depth, char* panels,
                       int64_t panel_bytes) {
  const T* src = static_cast<const T*>(s.data);
  if (s.k_stride != 1) {
    pack_rows_dense<Width>(src, s.k_stride, count, depth, panels, panel_bytes);
    return;
  }
  for (int64_t first = 0; first < count; first += Width, panels += panel_bytes) {
    pack_k_dense<Width>(src + first * s.stride, s.stride, count - first, depth,
                        reinterpret_cast<float*>(panels));
  }
}

template <int Width>
static void pack(const PanelSource& s, int64_t count, int64_t depth, void* panels, int64_t panel_bytes) {
  char* out = static_cast<char*>(panels);
  if (s.dtype == DType::f32) pack_typed<Width, float>(s, count, depth, out, panel_bytes);
  if (s.dtype == DType::bf16) pack_typed<Width, bf16>(s, count, depth, out, panel_bytes);
  if (s.dtype == DType::f16) pack_typed<Width, fp16>(s, count, depth, out, panel_bytes);
}

template <class T>
static void write_typed(const float* sum, int64_t n, float alpha, T* c, bool accumulate) {
  constexpr int W = F32::kWidth;
  const F32 scale = broadcast(alpha);
  for (int64_t i = 0; i < n; i += W) {
    const int lanes = n - i < W ? static_cast<int>(n - i) : W;
    put_some(c + i, scale * load_some(sum + i, lanes), lanes, accumulate);
  }
}

static void write_row(const float* sum, int64_t n, float alpha, DType out, void* c, bool accumulate) {
  if (out == DType::f32) write_typed(sum, n, alpha, static_cast<float*>(c), accumulate);
  if (out == DType::bf16) write_typed(sum, n, alpha, static_cast<bf16*>(c), accumulate);
  if (out == DType::f16) write_typed(sum, n, alpha, static_cast<fp16*>(c), accumulate);
}

static const GemmKernel& kernel() {
  static constexpr GemmKernel kKernel = {
      "f32", kRowsOfTile,       kColumnsOfTile,       384,      1,       4,
      true,  pack<kRowsOfTile>, pack<kColumnsOfTile>, multiply, nullptr, nullptr};
  return kKernel;
}
