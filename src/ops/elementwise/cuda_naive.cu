// naive: the readable baseline of the functions of one and of two tensors. One thread per element, a row of
// the grid per row of the matrix. Memory bound: each operand read once, each result written once.
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/elementwise/binary.h"
#include "ops/elementwise/unary.h"

namespace kiln {
namespace {

template <class Kind, class T>
__global__ void unary_forward_kernel(RowView<T> x, RowView<T> y, int64_t cols, Accum<T> parameter) {
  const int64_t r = blockIdx.x;
  for (int64_t c = first_column(); c < cols; c += column_step())
    y[r][c] = from_accum<T>(Kind::value(to_accum(x[r][c]), parameter));
}

// `saved` is dy itself where the kind saves nothing: its slope does not look.
template <class Kind, class T>
__global__ void unary_backward_kernel(RowView<T> dy, RowView<T> saved, RowView<T> dx, int64_t cols,
                                      Accum<T> parameter, bool accumulate) {
  const int64_t r = blockIdx.x;
  for (int64_t c = first_column(); c < cols; c += column_step())
    put_grad(dx[r][c], to_accum(dy[r][c]) * Kind::slope(to_accum(saved[r][c]), parameter), accumulate);
}

struct Product {
  template <class A>
  __device__ static A of(A a, A b) {
    return a * b;
  }
};

struct Difference {
  template <class A>
  __device__ static A of(A a, A b) {
    return a - b;
  }
};

template <class Function, class T>
__global__ void binary_forward_kernel(RowView<T> a, RowView<T> b, RowView<T> y, int64_t cols) {
  const int64_t r = blockIdx.x;
  for (int64_t c = first_column(); c < cols; c += column_step())
    y[r][c] = from_accum<T>(Function::of(to_accum(a[r][c]), to_accum(b[r][c])));
}

template <class T>
struct MulGrads {
  RowView<T> da, db;  // null: not wanted
  bool add_to_da, add_to_db;
};

template <class T>
__global__ void mul_backward_kernel(RowView<T> dy, RowView<T> a, RowView<T> b, MulGrads<T> out,
                                    int64_t cols) {
  const int64_t r = blockIdx.x;
  for (int64_t c = first_column(); c < cols; c += column_step()) {
    const Accum<T> d = to_accum(dy[r][c]);
    if (out.da) put_grad(out.da[r][c], d * to_accum(b[r][c]), out.add_to_da);
    if (out.db) put_grad(out.db[r][c], d * to_accum(a[r][c]), out.add_to_db);
  }
}

template <class T>
__global__ void negate_kernel(RowView<T> dy, RowView<T> db, int64_t cols, bool accumulate) {
  const int64_t r = blockIdx.x;
  for (int64_t c = first_column(); c < cols; c += column_step())
    put_grad(db[r][c], -to_accum(dy[r][c]), accumulate);
}

template <class Function>
void binary_forward(RankContext& ctx, const BinaryForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(binary_forward_kernel<Function, T>, matrix_grid(f.p.rows, f.p.cols), kThreads, 0, cuda_stream(ctx),
           row_view<T>(f.a), row_view<T>(f.b), row_view<T>(f.y), f.p.cols);
  });
}

}  // namespace

template <class Kind>
void unary_cuda_naive_forward(RankContext& ctx, const UnaryForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(unary_forward_kernel<Kind, T>, matrix_grid(f.p.rows, f.p.cols), kThreads, 0, cuda_stream(ctx),
           row_view<T>(f.x), row_view<T>(f.y), f.p.cols, static_cast<Accum<T>>(f.p.parameter));
  });
}

template <class Kind>
void unary_cuda_naive_backward(RankContext& ctx, const UnaryBackward& b) {
  if (!b.dx.wanted()) return;
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const RowView<T> dy = row_view<T>(b.dy);
    launch(unary_backward_kernel<Kind, T>, matrix_grid(b.p.rows, b.p.cols), kThreads, 0, cuda_stream(ctx), dy,
           Kind::kSaves == UnarySaves::nothing ? dy : row_view<T>(b.saved), row_view<T>(b.dx.tensor),
           b.p.cols, static_cast<Accum<T>>(b.p.parameter), b.dx.accumulate);
  });
}

template void unary_cuda_naive_forward<SiluKind>(RankContext&, const UnaryForward&);
template void unary_cuda_naive_forward<SquareKind>(RankContext&, const UnaryForward&);
template void unary_cuda_naive_forward<RsqrtKind>(RankContext&, const UnaryForward&);
template void unary_cuda_naive_forward<ReluKind>(RankContext&, const UnaryForward&);
template void unary_cuda_naive_forward<ScaleKind>(RankContext&, const UnaryForward&);
template void unary_cuda_naive_backward<SiluKind>(RankContext&, const UnaryBackward&);
template void unary_cuda_naive_backward<SquareKind>(RankContext&, const UnaryBackward&);
template void unary_cuda_naive_backward<RsqrtKind>(RankContext&, const UnaryBackward&);
template void unary_cuda_naive_backward<ReluKind>(RankContext&, const UnaryBackward&);
template void unary_cuda_naive_backward<ScaleKind>(RankContext&, const UnaryBackward&);

void mul_cuda_naive_forward(RankContext& ctx, const BinaryForward& f) { binary_forward<Product>(ctx, f); }
void sub_cuda_naive_forward(RankContext& ctx, const BinaryForward& f) { binary_forward<Difference>(ctx, f); }

void mul_cuda_naive_backward(RankContext& ctx, const BinaryBackward& g) {
  with_float(g.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const MulGrads<T> out{row_view<T>(g.da.tensor), row_view<T>(g.db.tensor), g.da.accumulate,
                          g.db.accumulate};
    launch(mul_backward_kernel<T>, matrix_grid(g.p.rows, g.p.cols), kThreads, 0, cuda_stream(ctx),
           row_view<T>(g.dy), row_view<T>(g.a), row_view<T>(g.b), out, g.p.cols);
  });
}

void sub_cuda_naive_backward(RankContext& ctx, const BinaryBackward& g) {
  with_float(g.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(negate_kernel<T>, matrix_grid(g.p.rows, g.p.cols), kThreads, 0, cuda_stream(ctx),
           row_view<T>(g.dy), row_view<T>(g.db.tensor), g.p.cols, g.db.accumulate);
  });
}

}  // namespace kiln
