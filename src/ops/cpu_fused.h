// What the vectorised CPU kernels share: the dtypes they take, chunks whose bounds depend on the problem
// alone, and the ordered sum of per-chunk weight gradients.
#pragma once

#include <source_location>

#include "ops/cpu_rows.h"
#include "ops/variant.h"

namespace kiln {

// Vector kernels compute in fp32. fp64 is for definitions and gradient checks, which naive serves.
template <class Problem>
std::string needs_fp32_or_narrower(const Problem& p, const DeviceTraits&) {
  return p.dtype == DType::f64 ? "computes in fp32, fp64 runs on naive" : std::string();
}

template <class F>
void with_narrow_float(DType t, F&& f) {
  with_float(t, [&](auto zero) {
    if constexpr (!std::is_same_v<decltype(zero), double>) {
      f(zero);
    } else {
      throw Error("a vector kernel was given fp64");
    }
  });
}

// Null where the tensor is not needed.
template <class T>
Rows<T> rows_or_null(const Tensor& t) {
  return t.defined() ? rows_of<T>(t) : Rows<T>{nullptr, 0};
}

// A sum over all rows is taken in row chunks, each into its own row of a workspace, and the chunks are then
// added in order: no atomics, and the same bits for any number of threads. At most 64 chunks, so that the
// workspace stays small compared with the rows it sums.
struct RowChunks {
  int64_t rows_per_chunk, count;
};

inline RowChunks row_chunks(int64_t rows, int64_t cols) {
  const int64_t each = std::max(row_grain(cols), (rows + 63) / 64);
  return {each, (rows + each - 1) / each};
}

// Bytes of one partial sum per chunk and column.
inline std::size_t partials_bytes(int64_t rows, int64_t cols) {
  return static_cast<std::size_t>(row_chunks(rows, cols).count * cols) * sizeof(float);
}

// Scratch of a row that sums one weight gradient this way.
template <class Problem>
std::size_t partials_workspace(const Problem& p, Pass pass) {
  return pass == Pass::backward ? partials_bytes(p.rows, p.cols) : 0;
}

struct PartialSums {
  float* data;  // null: there is nothing to sum
  int64_t chunks;
};

// Calls f(partial, first row, last row) for each chunk of rows; `partial` is the chunk's `width` floats of
// the workspace, or null where no sum is wanted.
template <class F>
PartialSums for_row_chunks(RankContext& ctx, int64_t rows, int64_t cols, int64_t width,
                           const Tensor& workspace, bool wanted, F f,
                           std::source_location where = std::source_location::current()) {
  const RowChunks chunks = row_chunks(rows, cols);
  const bool sum = wanted && chunks.count > 0;
  float* partials = sum ? reinterpret_cast<float*>(workspace.raw()) : nullptr;
  ctx.pool().parallel_for(
      rows, chunks.rows_per_chunk,
      [&](int64_t begin, int64_t end) {
        f(sum ? partials + begin / chunks.rows_per_chunk * width : nullptr, begin, end);
      },
      where);
  return {partials, chunks.count};
}

// slot[c] = partials[0][c] + partials[1][c] + ..., or adds that; T is the dtype of the activations.
template <class T>
void sum_partials(RankContext& ctx, const float* partials, int64_t chunks, int64_t stride,
                  const GradSlot& slot, std::source_location where = std::source_location::current()) {
  with_grad_type<T>(slot, [&](auto zero) {
    using G = decltype(zero);
    G* out = slot.tensor.data<G>();
    constexpr int64_t kBlock = 256;  // columns whose sums stay in the first cache
    ctx.pool().parallel_for(
        slot.tensor.numel(), kBlock,
        [&](int64_t begin, int64_t end) {
          float sums[kBlock] = {};
          for (int64_t k = 0; k < chunks; ++k) {
            for (int64_t c = begin; c < end; ++c) sums[c - begin] += partials[k * stride + c];
          }
          for (int64_t c = begin; c < end; ++c) put(out[c], sums[c - begin], slot.accumulate);
        },
        where);
  });
}

// Elementwise work on [rows, cols]: f(first row, rows, first column, columns). Tensors without gaps are one
// long row, so that short and single rows are split evenly too.
template <class F>
void for_tiles(RankContext& ctx, int64_t rows, int64_t cols, bool dense, F f,
               std::source_location where = std::source_location::current()) {
  if (dense) {
    const auto part = [&](int64_t begin, int64_t end) { f(int64_t{0}, int64_t{1}, begin, end - begin); };
    ctx.pool().parallel_for(rows * cols, 16384, part, where);
  } else {
    const auto part = [&](int64_t begin, int64_t end) { f(begin, end - begin, int64_t{0}, cols); };
    ctx.pool().parallel_for(rows, row_grain(cols), part, where);
  }
}

}  // namespace kiln
