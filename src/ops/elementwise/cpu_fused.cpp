// fused: the same formulas in vectors of fp32, each tensor read or written once. Memory bounds are the bytes
// of the ops' cost functions.
#include "ops/cpu_fused.h"
#include "ops/elementwise/binary.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/unary.h"

namespace kiln {
namespace {

template <class T>
struct MulGradRow {
  const T *dy, *a, *b;
  T *da, *db;  // null: not wanted
  bool add_to_da, add_to_db;
};

}  // namespace
}  // namespace kiln

#define KILN_SIMD_FILE "ops/elementwise/cpu_fused_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {

template <class Kind>
void unary_cpu_fused_forward(RankContext& ctx, const UnaryForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<const T>(f.x);
    const auto y = rows_of<T>(f.y);
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, unary_row<Kind, T>);
    const bool dense = f.x.contiguous() && f.y.contiguous();
    for_tiles(ctx, f.p.rows, f.p.cols, dense, [&](int64_t row, int64_t rows, int64_t c, int64_t cols) {
      for (int64_t r = row; r < row + rows; ++r)
        kernel(x[r] + c, y[r] + c, cols, static_cast<float>(f.p.parameter));
    });
  });
}

template <class Kind>
void unary_cpu_fused_backward(RankContext& ctx, const UnaryBackward& b) {
  if (!b.dx.wanted()) return;
  with_narrow_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto dy = rows_of<const T>(b.dy);
    const auto saved = Kind::kSaves == UnarySaves::nothing ? dy : rows_of<const T>(b.saved);
    const auto dx = rows_of<T>(b.dx.tensor);
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, unary_grad_row<Kind, T>);
    ctx.pool().parallel_for(b.p.rows, row_grain(b.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        kernel(dy[r], saved[r], dx[r], b.p.cols, static_cast<float>(b.p.parameter), b.dx.accumulate);
    });
  });
}

template void unary_cpu_fused_forward<SiluKind>(RankContext&, const UnaryForward&);
template void unary_cpu_fused_forward<SquareKind>(RankContext&, const UnaryForward&);
template void unary_cpu_fused_forward<RsqrtKind>(RankContext&, const UnaryForward&);
template void unary_cpu_fused_forward<ReluKind>(RankContext&, const UnaryForward&);
template void unary_cpu_fused_forward<ScaleKind>(RankContext&, const UnaryForward&);
template void unary_cpu_fused_backward<SiluKind>(RankContext&, const UnaryBackward&);
template void unary_cpu_fused_backward<SquareKind>(RankContext&, const UnaryBackward&);
template void unary_cpu_fused_backward<RsqrtKind>(RankContext&, const UnaryBackward&);
template void unary_cpu_fused_backward<ScaleKind>(RankContext&, const UnaryBackward&);

namespace {

template <class T, class Kernel>
void binary_forward(RankContext& ctx, const BinaryForward& f, Kernel kernel) {
  const auto a = rows_of<const T>(f.a), b = rows_of<const T>(f.b);
  const auto y = rows_of<T>(f.y);
  const bool dense = f.a.contiguous() && f.b.contiguous() && f.y.contiguous();
  for_tiles(ctx, f.p.rows, f.p.cols, dense, [&](int64_t row, int64_t rows, int64_t c, int64_t cols) {
    for (int64_t r = row; r < row + rows; ++r) kernel(a[r] + c, b[r] + c, y[r] + c, cols);
  });
}

}  // namespace

void mul_cpu_fused_forward(RankContext& ctx, const BinaryForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    binary_forward<T>(ctx, f, KILN_SIMD_PICK(ctx.traits().isa, mul_row<T>));
  });
}

void mul_cpu_fused_backward(RankContext& ctx, const BinaryBackward& g) {
  with_narrow_float(g.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto dy = rows_of<const T>(g.dy), a = rows_of<const T>(g.a), b = rows_of<const T>(g.b);
    const auto da = rows_or_null<T>(g.da.tensor), db = rows_or_null<T>(g.db.tensor);
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, mul_grad_row<T>);
    ctx.pool().parallel_for(g.p.rows, row_grain(g.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        kernel({dy[r], a[r], b[r], da.row_or_null(r), db.row_or_null(r), g.da.accumulate, g.db.accumulate},
               g.p.cols);
      }
    });
  });
}

void sub_cpu_fused_forward(RankContext& ctx, const BinaryForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    binary_forward<T>(ctx, f, KILN_SIMD_PICK(ctx.traits().isa, sub_row<T>));
  });
}

void sub_cpu_fused_backward(RankContext& ctx, const BinaryBackward& g) {
  with_narrow_float(g.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto dy = rows_of<const T>(g.dy);
    const auto db = rows_of<T>(g.db.tensor);
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, scale_grad_row<T>);
    ctx.pool().parallel_for(g.p.rows, row_grain(g.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) kernel(dy[r], db[r], g.p.cols, -1.0f, g.db.accumulate);
    });
  });
}

void mul_rows_cpu_fused_forward(RankContext& ctx, const MulRowsForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<const T>(f.x);
    const auto y = rows_of<T>(f.y);
    const float* s = f.s.data<float>();
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, unary_row<ScaleKind, T>);
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) kernel(x[r], y[r], f.p.cols, s[r]);
    });
  });
}

void mul_rows_cpu_fused_backward(RankContext& ctx, const MulRowsBackward& b) {
  with_narrow_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto dy = rows_of<const T>(b.dy), x = rows_of<const T>(b.x);
    const auto dx = rows_or_null<T>(b.dx.tensor);
    const float* s = b.s.data<float>();
    float* ds = b.ds.wanted() ? b.ds.tensor.data<float>() : nullptr;
    const auto dot = KILN_SIMD_PICK(ctx.traits().isa, dot_row<T>);
    const auto scale = KILN_SIMD_PICK(ctx.traits().isa, scale_grad_row<T>);
    ctx.pool().parallel_for(b.p.rows, row_grain(b.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        if (ds != nullptr) put(ds[r], dot(dy[r], x[r], b.p.cols), b.ds.accumulate);
        if (dx.base != nullptr) scale(dy[r], dx[r], b.p.cols, s[r], b.dx.accumulate);
      }
    });
  });
}

void mul_columns_cpu_fused_forward(RankContext& ctx, const MulColumnsForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<const T>(f.x);
    const auto y = rows_of<T>(f.y);
    const T* w = f.weight.data<T>();
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, mul_row<T>);
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) kernel(x[r], w, y[r], f.p.cols);
    });
  });
}

void mul_columns_cpu_fused_backward(RankContext& ctx, const MulColumnsBackward& b) {
  with_narrow_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto dy = rows_of<const T>(b.dy), x = rows_of<const T>(b.x);
    const auto dx = rows_or_null<T>(b.dx.tensor);
    const T* w = b.weight.data<T>();
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, mul_columns_grad_row<T>);
    const PartialSums sums =
        for_row_chunks(ctx, b.p.rows, b.p.cols, b.p.cols, b.workspace, b.dweight.wanted(),
                       [&](float* partial, int64_t begin, int64_t end) {
                         if (partial != nullptr)
                           std::memset(partial, 0, static_cast<std::size_t>(b.p.cols) * sizeof(float));
                         for (int64_t r = begin; r < end; ++r)
                           kernel(dy[r], x[r], w, dx.row_or_null(r), b.dx.accumulate, partial, b.p.cols);
                       });
    if (b.dweight.wanted()) sum_partials<T>(ctx, sums.data, sums.chunks, b.p.cols, b.dweight);
  });
}

void row_mean_cpu_fused_forward(RankContext& ctx, const RowMeanForward& f) {
  with_narrow_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<const T>(f.x);
    float* mean = f.mean.data<float>();
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, sum_row<T>);
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) mean[r] = kernel(x[r], f.p.cols) / static_cast<float>(f.p.cols);
    });
  });
}

void row_mean_cpu_fused_backward(RankContext& ctx, const RowMeanBackward& b) {
  with_narrow_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto dx = rows_of<T>(b.dx.tensor);
    const float* dmean = b.dmean.data<float>();
    const auto kernel = KILN_SIMD_PICK(ctx.traits().isa, fill_grad_row<T>);
    ctx.pool().parallel_for(b.p.rows, row_grain(b.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        kernel(dx[r], b.p.cols, dmean[r] / static_cast<float>(b.p.cols), b.dx.accumulate);
    });
  });
}

}  // namespace kiln
