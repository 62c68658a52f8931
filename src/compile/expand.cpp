#include "compile/expand.h"

#include <cmath>

#include "ops/add/add.h"
#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/cast/cast.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/binary.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/unary.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/masked_softmax/masked_softmax.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/softmax/softmax.h"
#include "ops/swiglu/swiglu.h"

namespace kiln::compile {
namespace {

// Row means divide by the width in the format that is computed in.
int mean(Builder& b, int x) {
  const auto width = static_cast<double>(b.extent(x).width);
  return b.mul(b.row_sum(x), b.number(1 / width));
}

int rms_normed(Builder& b, int x, int weight, double eps) {
  const int rstd = b.unary(Prim::rsqrt, b.add(mean(b, b.mul(x, x)), b.number(eps)));
  return b.mul(b.mul(x, rstd), weight);
}

void add(ExpandCall& c) { c.out(0, c.b.add(c.in(0), c.in(1))); }
void sub(ExpandCall& c) { c.out(0, c.b.sub(c.in(0), c.in(1))); }
void mul(ExpandCall& c) { c.out(0, c.b.mul(c.in(0), c.in(1))); }
void silu(ExpandCall& c) { c.out(0, c.b.mul(c.in(0), c.b.unary(Prim::sigmoid, c.in(0)))); }
void square(ExpandCall& c) { c.out(0, c.b.mul(c.in(0), c.in(0))); }
void relu(ExpandCall& c) { c.out(0, c.b.unary(Prim::relu, c.in(0))); }
void mul_rows(ExpandCall& c) { c.out(0, c.b.mul(c.in(0), c.in(1))); }
void mul_columns(ExpandCall& c) { c.out(0, c.b.mul(c.in(0), c.param(0))); }
void row_mean(ExpandCall& c) { c.out(0, mean(c.b, c.in(0))); }
void softmax(ExpandCall& c) { c.out(0, c.b.softmax(c.in(0))); }
void cast(ExpandCall& c) { c.out(0, c.b.round(c.in(0), c.problem<CastProblem>().to)); }

void rsqrt(ExpandCall& c) {
  c.out(0, c.b.unary(Prim::rsqrt, c.b.add(c.in(0), c.b.number(c.problem<UnaryProblem>().parameter))));
}

void scale(ExpandCall& c) { c.out(0, c.b.mul(c.in(0), c.b.number(c.problem<UnaryProblem>().parameter))); }

void swiglu(ExpandCall& c) {
  const int gate = c.in(0);
  c.out(0, c.b.mul(c.b.mul(gate, c.b.unary(Prim::sigmoid, gate)), c.in(1)));
}

void rms_norm(ExpandCall& c) {
  c.out(0, rms_normed(c.b, c.in(0), c.param(0), static_cast<double>(c.problem<RmsNormProblem>().eps)));
}

void add_rms_norm(ExpandCall& c) {
  const int sum = c.out(0, c.b.add(c.in(0), c.in(1)));
  c.out(1, rms_normed(c.b, sum, c.param(0), static_cast<double>(c.problem<RmsNormProblem>().eps)));
}

void layer_norm(ExpandCall& c) {
  Builder& b = c.b;
  const int centred = b.sub(c.in(0), mean(b, c.in(0)));
  const double eps = static_cast<double>(c.problem<LayerNormProblem>().eps);
  const int rstd = b.unary(Prim::rsqrt, b.add(mean(b, b.mul(centred, centred)), b.number(eps)));
  c.out(0, b.add(b.mul(b.mul(centred, rstd), c.param(0)), c.param(1)));
}

// What a query does not see becomes -inf, whose exponential is 0 and whose gradient is not passed on.
void masked_softmax(ExpandCall& c) {
  Builder& b = c.b;
  const auto p = c.problem<MaskedSoftmaxProblem>();
  int x = b.mul(c.in(0), b.number(static_cast<double>(p.scale)));
  if (p.causal) {
    const int last = b.add(b.row_position(p.Tq), b.number(static_cast<double>(p.Tk - p.Tq)));
    const int hidden = b.binary(Prim::less, last, b.column_index(p.Tk));
    x = b.select(hidden, b.number(-HUGE_VAL), x);
  }
  c.out(0, b.softmax(x));
}

void rope(ExpandCall& c) {
  const auto p = c.problem<RopeProblem>();
  const auto angle_part = [p](int64_t row, int64_t column) {
    const int64_t pair = column % p.pairs();
    const double angle = static_cast<double>(p.offset + row) * rope_frequency(p, pair);
    return column < p.pairs() ? std::cos(angle) : std::sin(angle);
  };
  const int table = c.table({0, p.T, p.D, angle_part});
  c.out(0, c.b.rotate(c.in(0), table, p.D, p.interleaved));
  c.out(1, c.b.rotate(c.in(1), table, p.D, p.interleaved));
}

// Of each token: lse(logits) - logits[target]. A target outside the vocabulary makes the loss NaN; those that
// are ignored count for nothing, and where all are the loss is 0.
void cross_entropy(ExpandCall& c) {
  Builder& b = c.b;
  const int x = c.in(0), target = c.saved_input("targets");
  const auto vocab = static_cast<double>(c.problem<CrossEntropyProblem>().vocab);
  const int ignored = b.binary(Prim::equal, target, b.number(kIgnoreTarget));
  const int below = b.binary(Prim::less, target, b.number(0)),
            inside = b.binary(Prim::less, target, b.number(vocab));
  const int loss = b.sub(b.row_lse(x), b.pick(x, target));
  const int nan = b.number(std::nan(""));
  const int checked = b.select(below, nan, b.select(inside, loss, nan));
  const int counts = b.sub(b.number(1), ignored);
  const int total = b.column_sum(b.select(ignored, b.number(0), checked));
  const int count = b.column_sum(counts);
  c.out(0, b.div(total, b.binary(Prim::max, count, b.number(1))));
}

constexpr Expansion kRows[] = {
    {"add", add},
    {"sub", sub},
    {"mul", mul},
    {"silu", silu},
    {"square", square},
    {"rsqrt", rsqrt},
    {"relu", relu},
    {"scale", scale},
    {"mul_rows", mul_rows},
    {"mul_columns", mul_columns},
    {"row_mean", row_mean},
    {"cast", cast},
    {"rms_norm", rms_norm},
    {"add_rms_norm", add_rms_norm},
    {"layer_norm", layer_norm},
    {"softmax", softmax},
    {"masked_softmax", masked_softmax},
    {"swiglu", swiglu},
    {"rope", rope},
    {"cross_entropy", cross_entropy},
};

}  // namespace

std::span<const Expansion> expansions() { return kRows; }

const Expansion* find_expansion(std::string_view op) {
  for (const Expansion& e : kRows)
    if (e.op == op) return &e;
  return nullptr;
}

}  // namespace kiln::compile
