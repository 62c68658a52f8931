// small_m: y = x W^T for a handful of rows, as in decoding, where every weight is used a few times only and
// reading it is all the work. A row of W goes straight from memory into the dot products with all rows of x;
// `packed` would first write a copy of W, and read that.
//
//   bound   in x out weights read once at the memory's rate; the multiply-adds are a few per weight
//   bits    each y is one vector of partial sums along k in order and a fixed sum over its lanes: they depend
//           neither on the number of threads nor on how many rows x has
//
// Backward is packed's.
#include "ops/cpu_fused.h"
#include "ops/linear/linear.h"

namespace kiln {
namespace {

constexpr int kMostRows = 8;

template <class T>
struct SmallMTask {
  const float* x;  // [rows][depth], zeros after `in`
  int64_t depth, in;
  const T* weight;  // row n is weight + n * weight_row
  int64_t weight_row;
  T* y;  // [rows][y_row]
  int64_t y_row;
  int64_t begin, end;  // of W's rows
};

int64_t padded_depth(int64_t in) { return (in + 15) / 16 * 16; }

}  // namespace
}  // namespace kiln

#define KILN_SIMD_FILE "ops/linear/cpu_small_m_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {
namespace {

template <class T>
using TaskFunction = void (*)(const SmallMTask<T>&);

// One instance for each number of rows, so that all sums stay in registers.
template <class T, int kRows = 1>
TaskFunction<T> task_for(CpuIsa isa, int64_t rows) {
  if constexpr (kRows > kMostRows) {
    throw Error(cat("[linear] small_m was given ", rows, " rows"));
  } else {
    if (rows != kRows) return task_for<T, kRows + 1>(isa, rows);
    return KILN_SIMD_PICK(isa, small_m<kRows, T>);
  }
}

// Split so that a chunk reads about 128 KiB of weights, whole groups of rows.
int64_t rows_per_chunk(int64_t in, std::size_t element) {
  constexpr int64_t kGroup = 8;
  const int64_t rows = (int64_t{128} << 10) / std::max<int64_t>(1, in * static_cast<int64_t>(element));
  return std::max(kGroup, rows / kGroup * kGroup);
}

}  // namespace

std::string linear_cpu_small_m_unsupported(const LinearProblem& p, const DeviceTraits&) {
  if (p.dtype == DType::f64) return "computes in fp32, fp64 runs on naive";
  if (p.rows > kMostRows) return cat("takes at most ", kMostRows, " rows, not ", p.rows);
  return {};
}

std::size_t linear_cpu_small_m_workspace(const LinearProblem& p, Pass pass) {
  if (pass == Pass::backward) return linear_cpu_packed_workspace(p, pass);
  return static_cast<std::size_t>(p.rows * padded_depth(p.in)) * sizeof(float);
}

void linear_cpu_small_m_forward(RankContext& ctx, const LinearForward& f) {
  const LinearProblem& p = f.p;
  if (p.rows == 0 || p.out == 0) return;
  with_narrow_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t depth = padded_depth(p.in);
    auto* x = reinterpret_cast<float*>(f.workspace.raw());
    const auto from = rows_of<const T>(f.x);
    for (int64_t m = 0; m < p.rows; ++m) {
      for (int64_t k = 0; k < p.in; ++k) x[m * depth + k] = static_cast<float>(from[m][k]);
      std::fill(x + m * depth + p.in, x + (m + 1) * depth, 0.0f);
    }
    const auto weight = rows_of<const T>(f.weight);
    const auto y = rows_of<T>(f.y);
    const TaskFunction<T> run = task_for<T>(ctx.traits().isa, p.rows);
    ctx.pool().parallel_for(p.out, rows_per_chunk(p.in, sizeof(T)), [&](int64_t begin, int64_t end) {
      run({x, depth, p.in, weight.base, weight.stride, y.base, y.stride, begin, end});
    });
  });
}

}  // namespace kiln
