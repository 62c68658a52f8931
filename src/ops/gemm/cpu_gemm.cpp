// Blocking around the kernel. B is packed for a band of columns and all of K, by all threads; then each task
// takes a band of rows, packs A a KC-block at a time into its thread's scratch, and multiplies panels. Bounds
// come from the problem alone, and every element of C is summed by one task in order of K: the thread count
// cannot change a bit.
#include "ops/gemm/cpu_gemm.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu_rows.h"
#include "ops/gemm/gemm_kernel.h"

namespace kiln {
namespace {

constexpr int64_t kPackedBytes = int64_t{16} << 20;  // of B at a time: within the last-level cache
constexpr int64_t kPanelsAtOnce = 4;  // packed by one task: a few lines of memory per step of K

int64_t multiple_above(int64_t n, int64_t m) { return (n + m - 1) / m * m; }

struct Blocking {
  int64_t depth;  // K padded
  int64_t band;   // columns of B packed at a time
  int64_t rows;   // of C per task
  bool direct;    // C is fp32 and written by the kernel itself
};

Blocking blocking(const CpuGemm& g, const GemmKernel& kernel) {
  Blocking b;
  b.depth = multiple_above(g.K, kernel.k_multiple);
  // Adding to an old C must add the finished sum, or the bits would depend on KC: then the sum is kept apart.
  b.direct = g.out == DType::f32 && g.alpha == 1 &&
             (!g.accumulate || (kernel.adds_finished_sum && b.depth <= kernel.KC));
  const int64_t fits =
      kPackedBytes / (std::max<int64_t>(1, b.depth) * kernel.element) / kernel.NR * kernel.NR;
  const int64_t widest = b.direct ? 8192 : 1024;  // a separate sum should stay in the second-level cache
  b.band =
      std::clamp(fits, kernel.NR, std::min(widest, multiple_above(std::max<int64_t>(1, g.N), kernel.NR)));
  // About 32 tasks: enough to share out evenly among few or many threads.
  b.rows =
      std::clamp(multiple_above((g.M + 31) / 32, kernel.MR), 2 * kernel.MR, multiple_above(256, kernel.MR));
  return b;
}

class Product {
 public:
  Product(RankContext& ctx, const CpuGemm& g, std::byte* packed)
      : ctx_(ctx),
        g_(g),
        kernel_(gemm_kernel(g.in, ctx.traits().isa)),
        b_(blocking(g, kernel_)),
        packed_(packed) {}

  void run() {
    for (int64_t n = 0; n < g_.N; n += b_.band) {
      const int64_t columns = std::min(b_.band, g_.N - n);
      pack_band(n, columns);
      ctx_.pool().parallel_for(g_.M, b_.rows,
                               [&](int64_t begin, int64_t end) { multiply_rows(begin, end, n, columns); });
    }
  }

 private:
  const std::byte* at(const void* base, int64_t elements) const {
    return static_cast<const std::byte*>(base) + elements * static_cast<int64_t>(size_of(g_.in));
  }

  // Panel after panel, each all of K deep: block k of panel p begins at (p * depth + k) * NR.
  void pack_band(int64_t first, int64_t columns) {
    const int64_t NR = kernel_.NR, panel_bytes = b_.depth * NR * kernel_.element;
    ctx_.pool().parallel_for((columns + NR - 1) / NR, kPanelsAtOnce, [&](int64_t begin, int64_t end) {
      const int64_t n = first + begin * NR, count = std::min(end * NR, columns) - begin * NR;
      for (int64_t k = 0; k < g_.K; k += kernel_.KC) {
        const PanelSource src{at(g_.b, n * g_.b_col + k * g_.b_row), g_.in, g_.b_col, g_.b_row};
        kernel_.pack_b(src, count, std::min(kernel_.KC, g_.K - k),
                       packed_ + begin * panel_bytes + k * NR * kernel_.element, panel_bytes);
      }
    });
  }

  void multiply_rows(int64_t begin, int64_t end, int64_t first, int64_t columns) {
    const int64_t MR = kernel_.MR, NR = kernel_.NR;
    const int64_t row_panels = (end - begin + MR - 1) / MR, column_panels = (columns + NR - 1) / NR;
    const int64_t sum_row = column_panels * NR;
    const int64_t a_bytes = multiple_above(row_panels * MR * kernel_.KC * kernel_.element, 64);
    const int64_t sum_count =
        b_.direct ? MR * NR : row_panels * MR * sum_row;  // direct: one tile, for the edges
    std::byte* a = ctx_.pool().scratch(static_cast<std::size_t>(a_bytes) +
                                       static_cast<std::size_t>(sum_count) * sizeof(float));
    auto* sum = reinterpret_cast<float*>(a + a_bytes);
    if (kernel_.enter) kernel_.enter();
    for (int64_t k = 0; k < g_.K; k += kernel_.KC) {
      const int64_t steps = std::min(kernel_.KC, g_.K - k), depth = multiple_above(steps, kernel_.k_multiple);
      const PanelSource src{at(g_.a, begin * g_.a_row + k * g_.a_col), g_.in, g_.a_row, g_.a_col};
      kernel_.pack_a(src, end - begin, steps, a, MR * kernel_.KC * kernel_.element);
      for (int64_t p = 0; p < column_panels; ++p) {
        const std::byte* b_panel = packed_ + (p * b_.depth + k) * NR * kernel_.element;
        for (int64_t r = 0; r < row_panels; ++r) {
          const std::byte* a_panel = a + r * MR * kernel_.KC * kernel_.element;
          if (!b_.direct) {
            kernel_.multiply(depth, a_panel, b_panel, sum + r * MR * sum_row + p * NR, sum_row, k > 0);
          } else {
            multiply_tile(depth, a_panel, b_panel, begin + r * MR, end, first + p * NR, first + columns, sum,
                          k > 0 || g_.accumulate);
          }
        }
      }
    }
    if (kernel_.leave) kernel_.leave();
    if (!b_.direct) write_out(sum, sum_row, begin, end, first, columns);
  }

  // A whole tile goes straight into C; at the edges it takes the way over a small buffer.
  void multiply_tile(int64_t depth, const std::byte* a, const std::byte* b, int64_t m, int64_t m_end,
                     int64_t n, int64_t n_end, float* buffer, bool add) {
    float* c = static_cast<float*>(g_.c) + m * g_.c_row + n;
    const int64_t rows = std::min(kernel_.MR, m_end - m), columns = std::min(kernel_.NR, n_end - n);
    if (rows == kernel_.MR && columns == kernel_.NR) {
      kernel_.multiply(depth, a, b, c, g_.c_row, add);
      return;
    }
    kernel_.multiply(depth, a, b, buffer, kernel_.NR, false);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        const float v = buffer[i * kernel_.NR + j];
        c[i * g_.c_row + j] = add ? c[i * g_.c_row + j] + v : v;
      }
    }
  }

  void write_out(const float* sum, int64_t sum_row, int64_t begin, int64_t end, int64_t first,
                 int64_t columns) {
    with_float(g_.out, [&](auto zero) {
      using T = decltype(zero);
      for (int64_t m = begin; m < end; ++m) {
        T* c = static_cast<T*>(g_.c) + m * g_.c_row + first;
        const float* row = sum + (m - begin) * sum_row;
        for (int64_t n = 0; n < columns; ++n) put(c[n], g_.alpha * row[n], g_.accumulate);
      }
    });
  }

  RankContext& ctx_;
  const CpuGemm& g_;
  const GemmKernel& kernel_;
  Blocking b_;
  std::byte* packed_;
};

void clear(const CpuGemm& g) {  // no step of K: the product is zero
  if (g.accumulate) return;
  const std::size_t row = static_cast<std::size_t>(g.N) * size_of(g.out);
  for (int64_t m = 0; m < g.M; ++m) {
    std::memset(static_cast<std::byte*>(g.c) + m * g.c_row * static_cast<int64_t>(size_of(g.out)), 0, row);
  }
}

}  // namespace

const GemmKernel& gemm_kernel(DType in, CpuIsa isa) {
  if (in == DType::bf16 && isa >= CpuIsa::amx) return bf16_amx_gemm_kernel();
  if (in == DType::bf16 && isa >= CpuIsa::avx512_bf16) return bf16_dot_gemm_kernel();
  return f32_gemm_kernel(isa);
}

std::size_t cpu_gemm_workspace(const CpuGemm& g, CpuIsa isa) {
  const GemmKernel& kernel = gemm_kernel(g.in, isa);
  const Blocking b = blocking(g, kernel);
  return static_cast<std::size_t>(b.band * b.depth * kernel.element);
}

void cpu_gemm(RankContext& ctx, const CpuGemm& g, std::byte* workspace) {
  if (g.M == 0 || g.N == 0) return;
  g.K == 0 ? clear(g) : Product(ctx, g, workspace).run();
}

}  // namespace kiln
