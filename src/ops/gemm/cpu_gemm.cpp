// Blocking around the kernel. B is packed for a band of columns and all of K, by all threads; then each task
// takes a band of rows, packs A a KC-block at a time into its thread's scratch, and multiplies panels. Every
// element of C is summed by one task in order of K, in blocks that come from the problem alone: how many rows
// a task takes, which does depend on the number of threads, cannot change a bit.
#include "ops/gemm/cpu_gemm.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu_rows.h"
#include "ops/gemm/gemm_kernel.h"

namespace kiln {
namespace {

constexpr int64_t kPackedBytes = int64_t{16} << 20;  // of B at a time: within the last-level cache
constexpr int64_t kTaskRows = 256;                   // of C at most
constexpr int64_t kPanelsAtOnce = 4;  // packed by one task: a few lines of memory per step of K

int64_t multiple_above(int64_t n, int64_t m) { return (n + m - 1) / m * m; }

struct Blocking {
  int64_t depth;  // K padded
  int64_t band;   // columns of B packed at a time
  bool direct;    // C is fp32 and written by the kernel itself
};

Blocking blocking(const CpuGemm& g, const GemmKernel& kernel) {
  Blocking b;
  b.depth = multiple_above(g.K, kernel.k_multiple);
  // Adding to an old C must add the finished sum, or the bits would depend on KC: then the sum is kept apart.
  // So it is where AMX goes over C more than once: its tiles are 16 rows apart, and in a C whose rows are a
  // power of two long those fall on the same few lines of the cache.
  const bool one_pass = b.depth <= kernel.KC;
  b.direct = g.out == DType::f32 && g.alpha == 1 && (one_pass || kernel.adds_finished_sum) &&
             (!g.accumulate || (kernel.adds_finished_sum && one_pass));
  const int64_t fits =
      kPackedBytes / (std::max<int64_t>(1, b.depth) * kernel.element) / kernel.NR * kernel.NR;
  const int64_t widest = b.direct ? 8192 : 1024;  // a separate sum should stay in the second-level cache
  b.band =
      std::clamp(fits, kernel.NR, std::min(widest, multiple_above(std::max<int64_t>(1, g.N), kernel.NR)));
  return b;
}

// Row panels per task: as many as the second-level cache likes, so that a panel of B is used often, unless
// that leaves threads idle at the end. At least four tasks a thread, since other work may slow one down.
int64_t panels_per_task(int64_t panels, int64_t threads, int64_t most) {
  auto busiest = [&](int64_t chunk) {  // panels of the thread that gets most
    const int64_t tasks = (panels + chunk - 1) / chunk, missing = tasks * chunk - panels;
    return (tasks + threads - 1) / threads * chunk - (tasks % threads == 1 || threads == 1 ? missing : 0);
  };
  const int64_t even = (panels + threads - 1) / threads;
  int64_t chunk = std::max<int64_t>(1, std::min(most, panels / (4 * threads)));
  while (chunk > 1 && busiest(chunk) > even + even / 32) --chunk;
  return chunk;
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
    const int64_t MR = kernel_.MR, panels = (g_.M + MR - 1) / MR;
    const int64_t rows =
        MR * panels_per_task(panels, ctx_.pool().threads(), std::max<int64_t>(1, kTaskRows / MR));
    for (int64_t n = 0; n < g_.N; n += b_.band) {
      const int64_t columns = std::min(b_.band, g_.N - n);
      pack_band(n, columns);
      ctx_.pool().parallel_for(g_.M, rows,
                               [&](int64_t begin, int64_t end) { multiply_rows(begin, end, n, columns); });
    }
  }

 private:
  const std::byte* at(const void* base, int64_t elements) const {
    return static_cast<const std::byte*>(base) + elements * static_cast<int64_t>(size_of(g_.in));
  }

  // Where block k of panel p begins: a block's panels are one after another, so that a kernel can fetch the
  // next one while it works.
  int64_t packed_at(int64_t k, int64_t p, int64_t column_panels) const {
    const int64_t block = std::min(kernel_.KC, b_.depth - k);
    return (k * column_panels + p * block) * kernel_.NR * kernel_.element;
  }

  void pack_band(int64_t first, int64_t columns) {
    const int64_t NR = kernel_.NR, column_panels = (columns + NR - 1) / NR;
    ctx_.pool().parallel_for(column_panels, kPanelsAtOnce, [&](int64_t begin, int64_t end) {
      const int64_t n = first + begin * NR, count = std::min(end * NR, columns) - begin * NR;
      for (int64_t k = 0; k < g_.K; k += kernel_.KC) {
        const PanelSource src{at(g_.b, n * g_.b_col + k * g_.b_row), g_.in, g_.b_col, g_.b_row};
        kernel_.pack_b(src, count, std::min(kernel_.KC, g_.K - k),
                       packed_ + packed_at(k, begin, column_panels),
                       std::min(kernel_.KC, b_.depth - k) * NR * kernel_.element);
      }
    });
  }

  void multiply_rows(int64_t begin, int64_t end, int64_t first, int64_t columns) {
    const int64_t MR = kernel_.MR, NR = kernel_.NR;
    const int64_t row_panels = (end - begin + MR - 1) / MR, column_panels = (columns + NR - 1) / NR;
    const int64_t a_bytes = multiple_above(row_panels * MR * kernel_.KC * kernel_.element, 64);
    // Sums are stored tile by tile, [column panel][row panel][MR][NR]. Direct: one tile, for the edges.
    const int64_t sum_count = MR * NR * (b_.direct ? 1 : row_panels * column_panels);
    std::byte* a = ctx_.pool().scratch(static_cast<std::size_t>(a_bytes) +
                                       static_cast<std::size_t>(sum_count) * sizeof(float));
    auto* sum = reinterpret_cast<float*>(a + a_bytes);
    if (kernel_.enter) kernel_.enter();
    for (int64_t k = 0; k < g_.K; k += kernel_.KC) {
      const int64_t steps = std::min(kernel_.KC, g_.K - k), depth = multiple_above(steps, kernel_.k_multiple);
      const PanelSource src{at(g_.a, begin * g_.a_row + k * g_.a_col), g_.in, g_.a_row, g_.a_col};
      kernel_.pack_a(src, end - begin, steps, a, MR * kernel_.KC * kernel_.element);
      for (int64_t p = 0; p < column_panels; ++p) {
        const std::byte* b_panel = packed_ + packed_at(k, p, column_panels);
        const int64_t panel_bytes = depth * NR * kernel_.element;
        const std::byte* next = p + 1 < column_panels ? b_panel + panel_bytes : b_panel;
        for (int64_t r = 0; r < row_panels; ++r) {
          const Panels panels{depth, a + r * MR * kernel_.KC * kernel_.element, b_panel,
                              next + r % 4 * (panel_bytes / 4)};
          if (!b_.direct) {
            multiply(panels, sum + (p * row_panels + r) * MR * NR, NR, k > 0);
          } else {
            multiply_tile(panels, begin + r * MR, end, first + p * NR, first + columns, sum,
                          k > 0 || g_.accumulate);
          }
        }
      }
    }
    if (kernel_.leave) kernel_.leave();
    if (!b_.direct) write_out(sum, begin, end, first, columns);
  }

  struct Panels {
    int64_t depth;
    const std::byte *a, *b;
    const std::byte* ahead;  // a quarter of the next panel of B, each row panel another one
  };

  void multiply(const Panels& p, float* c, int64_t c_row, bool add) const {
    kernel_.multiply(p.depth, p.a, p.b, c, c_row, add, p.ahead);
  }

  // A whole tile goes straight into C; at the edges it takes the way over a small buffer.
  void multiply_tile(const Panels& panels, int64_t m, int64_t m_end, int64_t n, int64_t n_end, float* buffer,
                     bool add) {
    float* c = static_cast<float*>(g_.c) + m * g_.c_row + n;
    const int64_t rows = std::min(kernel_.MR, m_end - m), columns = std::min(kernel_.NR, n_end - n);
    if (rows == kernel_.MR && columns == kernel_.NR) {
      multiply(panels, c, g_.c_row, add);
      return;
    }
    multiply(panels, buffer, kernel_.NR, false);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        const float v = buffer[i * kernel_.NR + j];
        c[i * g_.c_row + j] = add ? c[i * g_.c_row + j] + v : v;
      }
    }
  }

  void write_out(const float* sum, int64_t begin, int64_t end, int64_t first, int64_t columns) {
    const WriteGemmRow write = write_gemm_row(ctx_.traits().isa);
    const int64_t MR = kernel_.MR, NR = kernel_.NR, row_panels = (end - begin + MR - 1) / MR;
    const auto element = static_cast<int64_t>(size_of(g_.out));
    for (int64_t m = begin; m < end; ++m) {
      std::byte* c = static_cast<std::byte*>(g_.c) + (m * g_.c_row + first) * element;
      const float* row = sum + (m - begin) * NR;  // of the first column panel
      for (int64_t n = 0; n < columns; n += NR, row += row_panels * MR * NR, c += NR * element) {
        write(row, std::min(NR, columns - n), g_.alpha, g_.out, c, g_.accumulate);
      }
    }
  }

  RankContext& ctx_;
  const CpuGemm& g_;
  const GemmKernel& kernel_;
  Blocking b_;
  std::byte* packed_;
};

void clear(const CpuGemm& g) {  // no step of K: the result is zero
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
