#include "ops/cpu_rows.h"
#include "ops/elementwise/binary.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/unary.h"

namespace kiln {
namespace {

// f(r, c) for every element, rows split among threads.
template <class F>
void for_elements(RankContext& ctx, int64_t rows, int64_t cols, F f) {
  ctx.pool().parallel_for(rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < cols; ++c) f(r, c);
    }
  });
}

template <class T>
Rows<T> grad_rows(const GradSlot& slot) {
  return slot.wanted() ? rows_of<T>(slot.tensor) : Rows<T>{nullptr, 0};
}

}  // namespace

template <class Kind>
void unary_cpu_naive_forward(RankContext& ctx, const UnaryForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<T>(f.x), y = rows_of<T>(f.y);
    const auto parameter = static_cast<Accum<T>>(f.p.parameter);
    for_elements(ctx, f.p.rows, f.p.cols, [&](int64_t r, int64_t c) {
      y[r][c] = static_cast<T>(Kind::value(widen(x[r][c]), parameter));
    });
  });
}

template <class Kind>
void unary_cpu_naive_backward(RankContext& ctx, const UnaryBackward& b) {
  if (!b.dx.wanted()) return;
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto dy = rows_of<T>(b.dy), dx = rows_of<T>(b.dx.tensor);
    const auto saved = Kind::kSaves == UnarySaves::nothing ? dy : rows_of<T>(b.saved);
    const auto parameter = static_cast<Accum<T>>(b.p.parameter);
    for_elements(ctx, b.p.rows, b.p.cols, [&](int64_t r, int64_t c) {
      put(dx[r][c], widen(dy[r][c]) * Kind::slope(widen(saved[r][c]), parameter), b.dx.accumulate);
    });
  });
}

template void unary_cpu_naive_forward<SiluKind>(RankContext&, const UnaryForward&);
template void unary_cpu_naive_forward<SquareKind>(RankContext&, const UnaryForward&);
template void unary_cpu_naive_forward<RsqrtKind>(RankContext&, const UnaryForward&);
template void unary_cpu_naive_forward<ReluKind>(RankContext&, const UnaryForward&);
template void unary_cpu_naive_forward<ScaleKind>(RankContext&, const UnaryForward&);
template void unary_cpu_naive_backward<SiluKind>(RankContext&, const UnaryBackward&);
template void unary_cpu_naive_backward<SquareKind>(RankContext&, const UnaryBackward&);
template void unary_cpu_naive_backward<RsqrtKind>(RankContext&, const UnaryBackward&);
template void unary_cpu_naive_backward<ReluKind>(RankContext&, const UnaryBackward&);
template void unary_cpu_naive_backward<ScaleKind>(RankContext&, const UnaryBackward&);

void mul_cpu_naive_forward(RankContext& ctx, const BinaryForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto a = rows_of<T>(f.a), b = rows_of<T>(f.b), y = rows_of<T>(f.y);
    for_elements(ctx, f.p.rows, f.p.cols,
                 [&](int64_t r, int64_t c) { y[r][c] = static_cast<T>(widen(a[r][c]) * widen(b[r][c])); });
  });
}

void mul_cpu_naive_backward(RankContext& ctx, const BinaryBackward& g) {
  with_float(g.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto a = rows_of<T>(g.a), b = rows_of<T>(g.b), dy = rows_of<T>(g.dy);
    const auto da = grad_rows<T>(g.da), db = grad_rows<T>(g.db);
    for_elements(ctx, g.p.rows, g.p.cols, [&](int64_t r, int64_t c) {
      const auto d = widen(dy[r][c]);
      if (g.da.wanted()) put(da[r][c], d * widen(b[r][c]), g.da.accumulate);
      if (g.db.wanted()) put(db[r][c], d * widen(a[r][c]), g.db.accumulate);
    });
  });
}

void sub_cpu_naive_forward(RankContext& ctx, const BinaryForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto a = rows_of<T>(f.a), b = rows_of<T>(f.b), y = rows_of<T>(f.y);
    for_elements(ctx, f.p.rows, f.p.cols,
                 [&](int64_t r, int64_t c) { y[r][c] = static_cast<T>(widen(a[r][c]) - widen(b[r][c])); });
  });
}

void sub_cpu_naive_backward(RankContext& ctx, const BinaryBackward& g) {
  with_float(g.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto dy = rows_of<T>(g.dy), db = rows_of<T>(g.db.tensor);
    for_elements(ctx, g.p.rows, g.p.cols,
                 [&](int64_t r, int64_t c) { put(db[r][c], -widen(dy[r][c]), g.db.accumulate); });
  });
}

void mul_rows_cpu_naive_forward(RankContext& ctx, const MulRowsForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<T>(f.x), y = rows_of<T>(f.y);
    const Accum<T>* s = f.s.data<Accum<T>>();
    for_elements(ctx, f.p.rows, f.p.cols,
                 [&](int64_t r, int64_t c) { y[r][c] = static_cast<T>(widen(x[r][c]) * s[r]); });
  });
}

void mul_rows_cpu_naive_backward(RankContext& ctx, const MulRowsBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accum<T>;
    const auto x = rows_of<T>(b.x), dy = rows_of<T>(b.dy), dx = grad_rows<T>(b.dx);
    const A* s = b.s.data<A>();
    A* ds = b.ds.wanted() ? b.ds.tensor.data<A>() : nullptr;
    ctx.pool().parallel_for(b.p.rows, row_grain(b.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        A sum = 0;
        for (int64_t c = 0; c < b.p.cols; ++c) {
          sum += widen(dy[r][c]) * widen(x[r][c]);
          if (b.dx.wanted()) put(dx[r][c], widen(dy[r][c]) * s[r], b.dx.accumulate);
        }
        if (ds != nullptr) put(ds[r], sum, b.ds.accumulate);
      }
    });
  });
}

void mul_columns_cpu_naive_forward(RankContext& ctx, const MulColumnsForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<T>(f.x), y = rows_of<T>(f.y);
    const T* w = f.weight.data<T>();
    for_elements(ctx, f.p.rows, f.p.cols,
                 [&](int64_t r, int64_t c) { y[r][c] = static_cast<T>(widen(x[r][c]) * widen(w[c])); });
  });
}

// dw[c] sums the rows in order: columns are split among threads, rows are not.
void mul_columns_cpu_naive_backward(RankContext& ctx, const MulColumnsBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = rows_of<T>(b.x), dy = rows_of<T>(b.dy), dx = grad_rows<T>(b.dx);
    const T* w = b.weight.data<T>();
    if (b.dx.wanted()) {
      for_elements(ctx, b.p.rows, b.p.cols, [&](int64_t r, int64_t c) {
        put(dx[r][c], widen(dy[r][c]) * widen(w[c]), b.dx.accumulate);
      });
    }
    if (!b.dweight.wanted()) return;
    with_grad_type<T>(b.dweight, [&](auto g) {
      auto* dw = b.dweight.tensor.data<decltype(g)>();
      ctx.pool().parallel_for(b.p.cols, row_grain(b.p.rows), [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          Accum<T> sum = 0;
          for (int64_t r = 0; r < b.p.rows; ++r) sum += widen(dy[r][c]) * widen(x[r][c]);
          put(dw[c], sum, b.dweight.accumulate);
        }
      });
    });
  });
}

void row_mean_cpu_naive_forward(RankContext& ctx, const RowMeanForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accum<T>;
    const auto x = rows_of<T>(f.x);
    A* mean = f.mean.data<A>();
    ctx.pool().parallel_for(f.p.rows, row_grain(f.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        A sum = 0;
        for (int64_t c = 0; c < f.p.cols; ++c) sum += widen(x[r][c]);
        mean[r] = sum / static_cast<A>(f.p.cols);
      }
    });
  });
}

void row_mean_cpu_naive_backward(RankContext& ctx, const RowMeanBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accum<T>;
    const auto dx = rows_of<T>(b.dx.tensor);
    const A* dmean = b.dmean.data<A>();
    for_elements(ctx, b.p.rows, b.p.cols, [&](int64_t r, int64_t c) {
      put(dx[r][c], dmean[r] / static_cast<A>(b.p.cols), b.dx.accumulate);
    });
  });
}

}  // namespace kiln
