// The parallelism chapter's formulas: figures worked out by hand, and the tensor-parallel equations as
// printed, carried out with numbers.
#include "studies/calc/parallel_ffn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "base/error.h"
#include "studies/calc/memory_chapter.h"

namespace kiln {
namespace {

// B = 4096, D = 1024, F = 4096, N = 4, C = 1e12, W = 1e9.
FfnRequest request() {
  FfnRequest q;
  q.tokens = 4096;
  q.d_model = 1024;
  q.d_ff = 4096;
  q.devices = 4;
  q.flops = 1e12;
  q.bandwidth = 1e9;
  return q;
}
constexpr double B = 4096, D = 1024, F = 4096, N = 4, C = 1e12, W = 1e9;

TEST(CalcDp, FlopsCommunicationAndBound) {
  const Derivation d = calc_dp(request()).derivation;
  EXPECT_DOUBLE_EQ(d["flops_f"], 6 * B * D * F / N);
  EXPECT_DOUBLE_EQ(d["flops_b"], 12 * B * D * F / N);
  EXPECT_DOUBLE_EQ(d["comm_b"], 12 * D * F * (N - 1) / (N * W));
  EXPECT_DOUBLE_EQ(d["most_b"] - 1, B * W / C);
}

TEST(CalcFsdp, FlopsCommunicationAndBound) {
  const Derivation d = calc_fsdp(request()).derivation;
  EXPECT_DOUBLE_EQ(d["comm_f"], 6 * D * F * (N - 1) / (N * W));
  EXPECT_DOUBLE_EQ(d["comm_b"], 12 * D * F * (N - 1) / (N * W));
  EXPECT_DOUBLE_EQ(d["most_f"] - 1, B * W / C);
  EXPECT_DOUBLE_EQ(d["most_b"] - 1, B * W / C);
}

TEST(CalcTp, FlopsCommunicationAndBound) {
  const Derivation d = calc_tp(request()).derivation;
  EXPECT_DOUBLE_EQ(d["comm_f"], 4 * B * D * (N - 1) / (N * W));
  EXPECT_DOUBLE_EQ(d["comm_b"], d["comm_f"]);
  EXPECT_DOUBLE_EQ(d["most_f"] - 1, 3 * F * W / (2 * C));
  EXPECT_DOUBLE_EQ(d["most_b"] - 1, 3 * F * W / C);
}

// At the bound compute and communication take equally long, whatever the numbers.
TEST(CalcBounds, AtTheMostDevicesBothTakeEquallyLong) {
  for (const auto calculate : {calc_dp, calc_fsdp, calc_tp}) {
    FfnRequest q = request();
    q.flops = 4e10;
    q.bandwidth = 1.25e8;
    const double most = calculate(q).derivation["most_b"];
    q.devices = static_cast<int>(most);
    if (std::fmod(q.d_ff, q.devices) != 0) q.d_ff = q.devices * std::ceil(q.d_ff / q.devices);
    const Derivation at = calculate(q).derivation;
    const double exact = at["most_b"];
    const double scale = (exact - 1) / (q.devices - 1);  // comm grows as N - 1
    EXPECT_NEAR(at["comm_b"] * scale / at["t_b"], 1, 1e-9);
  }
}

TEST(Calc2d, BoundsAreTheProductAndAQuarterOfIt) {
  const Derivation d = calc_2d(request()).derivation;
  EXPECT_DOUBLE_EQ(d["n_overlap"], 3 * B * F * W * W / (2 * C * C));
  EXPECT_DOUBLE_EQ(d["n_apart"], 3 * B * F * W * W / (8 * C * C));
  EXPECT_DOUBLE_EQ(d["x_apart"] * d["y_apart"], d["n_apart"]);
  EXPECT_DOUBLE_EQ((d["x_overlap"] - 1) * (d["y_overlap"] - 1), d["n_overlap"]);
}

TEST(Calc2d, TakesTheSplitWithTheLeastCommunication) {
  FfnRequest q = request();
  q.devices = 64;
  const Derivation best = calc_2d(q).derivation;
  EXPECT_EQ(best["N_f"] * best["N_t"], 64);
  for (int fsdp = 1; fsdp <= 64; fsdp *= 2) {
    q.fsdp = fsdp;
    q.tp = 64 / fsdp;
    EXPECT_GE(calc_2d(q).derivation["comm_apart"], best["comm_apart"]) << fsdp;
  }
  q.tokens *= 1024;  // more activations: less tensor parallelism
  q.fsdp = q.tp = 0;
  EXPECT_GT(calc_2d(q).derivation["N_f"], best["N_f"]);
}

TEST(CalcParallel, RefusesWidthsThatCannotBeShared) {
  FfnRequest q = request();
  q.devices = 3;
  EXPECT_THROW((void)calc_tp(q), Error);
  q.fsdp = 2;
  EXPECT_THROW((void)calc_2d(q), Error);
  q.tp = 3;
  EXPECT_THROW((void)calc_2d(q), Error);
}

TEST(CalcParallel, AnswersFollowTheNumbers) {
  FfnRequest q = request();
  q.bandwidth = 1e13;
  EXPECT_NE(calc_dp(q).answers[0].find("it can be hidden"), std::string::npos) << calc_dp(q).answers[0];
  q.bandwidth = 1e6;
  EXPECT_NE(calc_dp(q).answers[0].find("exposed"), std::string::npos) << calc_dp(q).answers[0];
  EXPECT_NE(calc_dp(q).answers[1].find("4 are more than that"), std::string::npos) << calc_dp(q).answers[1];
}

// --- the exercise of a model far larger than a device: figures of the handout

TEST(CalcXxl, StateShardingAndBatch) {
  XxlRequest q;
  const Derivation d = calc_xxl(q).derivation;
  EXPECT_NEAR(d["P"], 219.85e9, 0.005e9);
  EXPECT_NEAR(d["state"], 3.518e12, 0.001e12);
  EXPECT_EQ(d["N_state"], 44);
  EXPECT_NEAR(d["act"], 17.55e6, 0.005e6);
  EXPECT_EQ(d["N_bare"], 38);
  EXPECT_EQ(d["B_overlap"], 20445);
  EXPECT_EQ(d["b_overlap"], 320);
  EXPECT_EQ(d["B_apart"], 25302);
  EXPECT_EQ(d["F_y"], 13312);
  EXPECT_EQ(d["F_least"], 2556);
  // Just enough devices: one fewer, and a device would need more than it has.
  const double n = d["N_f"], whole = d["whole"];
  EXPECT_LE((d["state"] + d["act"] * q.tokens / 2) / n + whole, q.sharded_bytes);
  EXPECT_GT((d["state"] + d["act"] * q.tokens / 2) / (n - 1) + whole, q.sharded_bytes);
}

TEST(CalcXxl, SaysWhereNoShardingIsEnough) {
  XxlRequest q;
  q.tokens = 1e6;
  const Calculation c = calc_xxl(q);
  EXPECT_NE(c.answers[1].find("no N_f is enough"), std::string::npos) << c.answers[1];
  q.tp = 64;
  EXPECT_NE(calc_xxl(q).answers[2].find("bound by its all-reduce"), std::string::npos)
      << calc_xxl(q).answers[2];
}

TEST(CalcResidualStream, OneTensor) {
  const auto mib = [](double d_model) {
    return calc_residual_stream({.batch = 4, .context = 512, .d_model = d_model, .bytes = 4, .size = "x"})
               .derivation["bytes"] /
           0x1p20;
  };
  EXPECT_EQ(mib(2560), 20);
  EXPECT_EQ(mib(768), 6);
  EXPECT_EQ(mib(1024), 8);
  EXPECT_EQ(mib(1280), 10);
  EXPECT_EQ(mib(1600), 12.5);
  EXPECT_EQ(mib(4608), 36);
}

// --- the tensor-parallel equations, as they are printed

struct Matrix {
  std::size_t rows = 0, cols = 0;
  std::vector<double> v;
  double& at(std::size_t r, std::size_t c) { return v[r * cols + c]; }
  double at(std::size_t r, std::size_t c) const { return v[r * cols + c]; }
};

Matrix make(std::size_t rows, std::size_t cols, const std::function<double(std::size_t, std::size_t)>& f) {
  Matrix m{rows, cols, std::vector<double>(rows * cols)};
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < cols; ++c) m.at(r, c) = f(r, c);
  return m;
}
Matrix transpose(const Matrix& a) {
  return make(a.cols, a.rows, [&](auto r, auto c) { return a.at(c, r); });
}
Matrix multiply(const Matrix& a, const Matrix& b) {
  EXPECT_EQ(a.cols, b.rows);
  return make(a.rows, b.cols, [&](auto r, auto c) {
    double s = 0;
    for (std::size_t k = 0; k < a.cols; ++k) s += a.at(r, k) * b.at(k, c);
    return s;
  });
}
Matrix by_element(const Matrix& a, const Matrix& b, const std::function<double(double, double)>& f) {
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.cols, b.cols);
  return make(a.rows, a.cols, [&](auto r, auto c) { return f(a.at(r, c), b.at(r, c)); });
}
double silu(double x) { return x / (1 + std::exp(-x)); }
double dsilu(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s * (1 + x * (1 - s));
}

using Shard = std::map<std::string, Matrix>;

// "A_n^T B + C o silu(D_n)" with the names of one shard: product binds closest, then o, then +.
class Expression {
 public:
  Expression(std::string text, const Shard& names) : text_(std::move(text)), names_(names) {}
  Matrix value() {
    Matrix m = sum();
    EXPECT_EQ(at_, text_.size()) << text_;
    return m;
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool takes(const std::string& s) {
    skip();
    if (text_.compare(at_, s.size(), s) != 0) return false;
    at_ += s.size();
    return true;
  }
  Matrix sum() {
    Matrix m = elements();
    while (takes("+ ")) m = by_element(m, elements(), std::plus<>());
    return m;
  }
  Matrix elements() {
    Matrix m = product();
    while (takes("o ")) m = by_element(m, product(), std::multiplies<>());
    return m;
  }
  bool begins_factor() {
    skip();
    return at_ < text_.size() &&
           (text_[at_] == '(' || (std::isalpha(text_[at_]) != 0 && text_.compare(at_, 2, "o ") != 0));
  }
  Matrix product() {
    Matrix m = factor();
    while (begins_factor()) m = multiply(m, factor());
    return m;
  }
  Matrix factor() {
    skip();
    Matrix m;
    if (takes("(")) {
      m = sum();
      EXPECT_TRUE(takes(")"));
    } else {
      std::string name;
      while (at_ < text_.size() && (std::isalnum(text_[at_]) != 0 || text_[at_] == '_')) name += text_[at_++];
      if (name == "silu" || name == "dsilu") {
        EXPECT_TRUE(takes("("));
        const Matrix inner = sum();
        EXPECT_TRUE(takes(")"));
        m = make(inner.rows, inner.cols, [&](auto r, auto c) {
          return name == "silu" ? silu(inner.at(r, c)) : dsilu(inner.at(r, c));
        });
      } else {
        EXPECT_TRUE(names_.contains(name)) << name << " in " << text_;
        m = names_.at(name);
      }
    }
    return takes("^T") ? transpose(m) : m;
  }

  std::string text_;
  const Shard& names_;
  std::size_t at_ = 0;
};

void carry_out(const std::vector<std::string>& equations, std::vector<Shard>& shards) {
  for (const std::string& equation : equations) {
    const std::size_t sign = equation.find(" = ");
    ASSERT_NE(sign, std::string::npos) << equation;
    const std::string name = equation.substr(0, sign);
    std::string right = equation.substr(sign + 3);
    const bool reduced = right.starts_with("sum_n ");
    if (reduced) right = right.substr(6);
    std::vector<Matrix> parts;
    for (Shard& s : shards) parts.push_back(Expression(right, s).value());
    for (std::size_t n = 1; reduced && n < parts.size(); ++n)
      parts[0] = by_element(parts[0], parts[n], std::plus<>());
    for (std::size_t n = 0; n < shards.size(); ++n) shards[n][name] = reduced ? parts[0] : parts[n];
  }
}

Matrix columns(const Matrix& m, std::size_t from, std::size_t to) {
  return make(m.rows, to - from, [&](auto r, auto c) { return m.at(r, c + from); });
}
Matrix rows(const Matrix& m, std::size_t from, std::size_t to) {
  return transpose(columns(transpose(m), from, to));
}

double furthest(const Matrix& a, const Matrix& b) {
  const Matrix apart = by_element(a, b, [](double x, double y) { return std::abs(x - y); });
  return std::accumulate(apart.v.begin(), apart.v.end(), 0.0,
                         [](double x, double y) { return std::max(x, y); });
}

struct Block {
  Matrix x, w1, w2, w3, dy;
};

// The loss of which dy is the gradient: sum of dy by element with the output.
double loss(const Block& b) {
  const Matrix g = multiply(b.x, b.w1), u = multiply(b.x, b.w2);
  const Matrix h = by_element(g, u, [](double p, double q) { return silu(p) * q; });
  const Matrix y = by_element(multiply(h, b.w3), b.dy, std::multiplies<>());
  return std::accumulate(y.v.begin(), y.v.end(), 0.0);
}

Matrix numeric_gradient(Block b, Matrix Block::* of) {
  Matrix gradient = b.*of;
  for (std::size_t i = 0; i < gradient.v.size(); ++i) {
    const double kept = (b.*of).v[i], step = 1e-5;
    (b.*of).v[i] = kept + step;
    const double above = loss(b);
    (b.*of).v[i] = kept - step;
    gradient.v[i] = (above - loss(b)) / (2 * step);
    (b.*of).v[i] = kept;
  }
  return gradient;
}

Matrix some(std::size_t rows, std::size_t cols, double phase) {
  return make(rows, cols, [=](auto r, auto c) {
    return std::sin(phase + 1.7 * static_cast<double>(r) + 0.9 * static_cast<double>(c * c));
  });
}

// Each device has a part of F: columns of W1 and W2, rows of W3. Put together, its gradients are those of the
// whole.
TEST(CalcTp, ThePrintedEquationsGiveTheWholeBlocksGradients) {
  constexpr std::size_t kF = 6;
  const Block b{some(5, 4, 0.1), some(4, kF, 0.2), some(4, kF, 0.3), some(kF, 4, 0.4), some(5, 4, 0.5)};
  for (const std::size_t devices : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
    const std::size_t part = kF / devices;
    std::vector<Shard> shards;
    for (std::size_t n = 0; n < devices; ++n)
      shards.push_back({{"X", b.x},
                        {"dY", b.dy},
                        {"W1_n", columns(b.w1, n * part, (n + 1) * part)},
                        {"W2_n", columns(b.w2, n * part, (n + 1) * part)},
                        {"W3_n", rows(b.w3, n * part, (n + 1) * part)}});
    carry_out(tp_forward_equations(), shards);
    carry_out(tp_backward_equations(), shards);
    const Matrix dw1 = numeric_gradient(b, &Block::w1), dw2 = numeric_gradient(b, &Block::w2),
                 dw3 = numeric_gradient(b, &Block::w3);
    for (std::size_t n = 0; n < devices; ++n) {
      EXPECT_LT(furthest(shards[n]["dX"], numeric_gradient(b, &Block::x)), 1e-7) << devices;
      EXPECT_LT(furthest(shards[n]["dW1_n"], columns(dw1, n * part, (n + 1) * part)), 1e-7);
      EXPECT_LT(furthest(shards[n]["dW2_n"], columns(dw2, n * part, (n + 1) * part)), 1e-7);
      EXPECT_LT(furthest(shards[n]["dW3_n"], rows(dw3, n * part, (n + 1) * part)), 1e-7);
    }
  }
}

}  // namespace
}  // namespace kiln
