// Functions of one tensor, element by element: silu, square, rsqrt, relu, scale. One template carries them
// all; a kind gives the formula, what its derivative needs and what it costs, so each is a separate op to
// profilers, ledgers and `--variant`.
#pragma once

#include <cmath>

#include "ops/variant.h"

namespace kiln {

class BackwardPass;

struct UnaryProblem {
  int64_t rows, cols;
  DType dtype;
  double parameter;  // rsqrt: eps; scale: the factor
};

struct UnaryForward {
  UnaryProblem p;
  const Tensor& x;  // [rows, cols]
  const Tensor& y;  // [rows, cols]
};

struct UnaryBackward {
  UnaryProblem p;
  const Tensor& dy;
  const Tensor& saved;  // x, y or undefined, as the kind says
  GradSlot dx;
};

enum class UnarySaves { nothing, input, output };

// Each kind: value(x, parameter), and slope(saved, parameter) = dy/dx from what it saves.
struct SiluKind {
  static constexpr const char* kName = "silu";
  static constexpr const char* kSummary = "y = x / (1 + exp(-x))";
  static constexpr UnarySaves kSaves = UnarySaves::input;
  static constexpr int kForwardFlops = 4, kBackwardFlops = 9;
  template <class A>
  KILN_HD static A value(A x, A) {
    return x / (1 + std::exp(-x));
  }
  template <class A>
  KILN_HD static A slope(A x, A) {
    const A s = 1 / (1 + std::exp(-x));
    return s * (1 + x * (1 - s));
  }
};

struct SquareKind {
  static constexpr const char* kName = "square";
  static constexpr const char* kSummary = "y = x^2";
  static constexpr UnarySaves kSaves = UnarySaves::input;
  static constexpr int kForwardFlops = 1, kBackwardFlops = 2;
  template <class A>
  KILN_HD static A value(A x, A) {
    return x * x;
  }
  template <class A>
  KILN_HD static A slope(A x, A) {
    return 2 * x;
  }
};

struct RsqrtKind {
  static constexpr const char* kName = "rsqrt";
  static constexpr const char* kSummary = "y = 1 / sqrt(x + eps)";
  static constexpr UnarySaves kSaves = UnarySaves::output;
  static constexpr int kForwardFlops = 3, kBackwardFlops = 4;
  template <class A>
  KILN_HD static A value(A x, A eps) {
    return 1 / std::sqrt(x + eps);
  }
  template <class A>
  KILN_HD static A slope(A y, A) {
    return A(-0.5) * (y * y * y);
  }
};

struct ReluKind {
  static constexpr const char* kName = "relu";
  static constexpr const char* kSummary = "y = max(x, 0); NaN stays NaN";
  static constexpr UnarySaves kSaves = UnarySaves::output;
  static constexpr int kForwardFlops = 1, kBackwardFlops = 1;
  template <class A>
  KILN_HD static A value(A x, A) {
    return x < 0 ? A(0) : x;
  }
  template <class A>
  KILN_HD static A slope(A y, A) {
    return y > 0 ? A(1) : A(0);
  }
};

struct ScaleKind {
  static constexpr const char* kName = "scale";
  static constexpr const char* kSummary = "y = s x with a number s";
  static constexpr UnarySaves kSaves = UnarySaves::nothing;
  static constexpr int kForwardFlops = 1, kBackwardFlops = 1;
  template <class A>
  KILN_HD static A value(A x, A s) {
    return x * s;
  }
  template <class A>
  KILN_HD static A slope(A, A s) {
    return s;
  }
};

template <class Kind>
struct UnaryOp {
  static constexpr const char* kName = Kind::kName;
  static constexpr OpKind kKind = OpKind::elementwise;
  static constexpr const char* kSummary = Kind::kSummary;
  using Problem = UnaryProblem;
  using Forward = UnaryForward;
  using Backward = UnaryBackward;
  static std::span<const Variant<UnaryOp>> rows();
  static void run_backward(BackwardPass& pass);
  static Problem example() { return {128, 256, DType::f32, 1}; }
  static Cost cost(const UnaryProblem& p, Pass pass) {
    const double n = static_cast<double>(p.rows) * static_cast<double>(p.cols);
    const double e = static_cast<double>(size_of(p.dtype));
    // forward: read x, write y; backward: read dy and what is saved, write dx
    return pass == Pass::forward
               ? Cost{Kind::kForwardFlops * n, 2 * n * e}
               : Cost{Kind::kBackwardFlops * n, (Kind::kSaves == UnarySaves::nothing ? 2 : 3) * n * e};
  }
};

using SiluOp = UnaryOp<SiluKind>;
using SquareOp = UnaryOp<SquareKind>;
using RsqrtOp = UnaryOp<RsqrtKind>;
using ReluOp = UnaryOp<ReluKind>;
using ScaleOp = UnaryOp<ScaleKind>;

// x of any shape, rows may be strided. What each saves is its kind's kSaves.
Tensor silu(RankContext& ctx, const Tensor& x, std::string_view variant = {});
Tensor square(RankContext& ctx, const Tensor& x, std::string_view variant = {});
Tensor rsqrt(RankContext& ctx, const Tensor& x, double eps, std::string_view variant = {});
Tensor relu(RankContext& ctx, const Tensor& x, std::string_view variant = {});
Tensor scale(RankContext& ctx, const Tensor& x, double factor, std::string_view variant = {});

template <class Kind>
void unary_cpu_naive_forward(RankContext& ctx, const UnaryForward& f);
template <class Kind>
void unary_cpu_naive_backward(RankContext& ctx, const UnaryBackward& b);
template <class Kind>
void unary_cpu_fused_forward(RankContext& ctx, const UnaryForward& f);
template <class Kind>
void unary_cpu_fused_backward(RankContext& ctx, const UnaryBackward& b);
template <class Kind>
void unary_cuda_naive_forward(RankContext& ctx, const UnaryForward& f);
template <class Kind>
void unary_cuda_naive_backward(RankContext& ctx, const UnaryBackward& b);

}  // namespace kiln
