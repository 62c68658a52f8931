#include "compile/graph.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace kiln::compile {
namespace {

struct PrimRow {
  std::string_view name;
  int operands;
};
constexpr std::array<PrimRow, kPrims> kRows = {{
    {"input", 0},   {"constant", 0}, {"column_index", 0}, {"row_position", 0}, {"neg", 1},  {"exp", 1},
    {"log", 1},     {"rsqrt", 1},    {"recip", 1},        {"sigmoid", 1},      {"relu", 1}, {"round", 1},
    {"add", 2},     {"sub", 2},      {"mul", 2},          {"div", 2},          {"max", 2},  {"less", 2},
    {"equal", 2},   {"select", 3},   {"expand", 1},       {"rotate", 2},       {"pick", 2}, {"softmax", 1},
    {"row_sum", 1}, {"row_lse", 1},  {"column_sum", 1},
}};

Extent joined(Prim p, Extent a, Extent b) {
  if (a.width != b.width && a.width != 1 && b.width != 1)
    throw Error(cat("[compile] ", name_of(p), " of ", text_of(a), " and ", text_of(b)),
                "widths are equal, or one of them is 1");
  return {a.rows || b.rows, std::max(a.width, b.width)};
}

// What `v` must be as large as; nothing where its operands do not say.
bool extent_of(const Graph& g, const Value& v, Extent& e) {
  switch (v.prim) {
    case Prim::input:
    case Prim::column_index:
    case Prim::expand:
      return false;
    case Prim::constant:
      e = {};
      return true;
    case Prim::row_position:
    case Prim::pick:
      e = {true, 1};
      return true;
    case Prim::rotate:
    case Prim::softmax:
      e = g[v.a].extent;
      return true;
    case Prim::row_sum:
    case Prim::row_lse:
      e = {g[v.a].extent.rows, 1};
      return true;
    case Prim::column_sum:
      e = {false, g[v.a].extent.width};
      return true;
    default:
      e = g[v.a].extent;
      if (v.b >= 0) e = joined(v.prim, e, g[v.b].extent);
      if (v.c >= 0) e = joined(v.prim, e, g[v.c].extent);
      return true;
  }
}

}  // namespace

std::string_view name_of(Prim p) { return kRows[static_cast<std::size_t>(p)].name; }
int operands_of(Prim p) { return kRows[static_cast<std::size_t>(p)].operands; }

double evaluate(Prim p, double a, double b, double c) {
  switch (p) {
    case Prim::neg:
      return -a;
    case Prim::exp:
      return std::exp(a);
    case Prim::log:
      return std::log(a);
    case Prim::rsqrt:
      return 1 / std::sqrt(a);
    case Prim::recip:
      return 1 / a;
    case Prim::sigmoid:
      return 1 / (1 + std::exp(-a));
    case Prim::relu:
      return a < 0 ? 0 : a;
    case Prim::add:
      return a + b;
    case Prim::sub:
      return a - b;
    case Prim::mul:
      return a * b;
    case Prim::div:
      return a / b;
    case Prim::max:
      return a > b || a != a ? a : b;
    case Prim::less:
      return a < b ? 1 : 0;
    case Prim::equal:
      return a == b ? 1 : 0;
    case Prim::select:
      return a != 0 ? b : c;
    default:
      throw Error(cat("[compile] ", name_of(p), " of numbers"));
  }
}

int Builder::append(Value v) {
  if (v.op[0] == 0) v.op = op_;
  // An equal value is not made twice; the op it is part of makes no difference.
  for (int i = 0; i < g_.size() && v.prim != Prim::input; ++i) {
    Value other = g_[i];
    other.op = v.op;
    if (other == v) return i;
  }
  g_.values.push_back(v);
  return g_.size() - 1;
}

int Builder::fold(const Value& v) {
  const auto number = [&](int i) { return i >= 0 && g_[i].prim == Prim::constant; };
  const bool foldable = v.prim >= Prim::neg && v.prim <= Prim::select && v.prim != Prim::round;
  if (!foldable || !number(v.a) || (v.b >= 0 && !number(v.b)) || (v.c >= 0 && !number(v.c))) return -1;
  return this->number(
      evaluate(v.prim, g_[v.a].number, v.b >= 0 ? g_[v.b].number : 0, v.c >= 0 ? g_[v.c].number : 0));
}

int Builder::input(Extent e, DType dtype) {
  Value v;
  v.prim = Prim::input;
  v.extent = e;
  v.dtype = dtype;
  v.index = static_cast<int>(g_.inputs.size());
  const int at = append(v);
  g_.inputs.push_back(at);
  return at;
}

int Builder::table(int64_t period, int64_t width, DType dtype) {
  const int at = input({true, width}, dtype);
  g_.values[static_cast<std::size_t>(at)].period = period;
  return at;
}

int Builder::number(double x) {
  Value v;
  v.prim = Prim::constant;
  v.dtype = computes_;
  v.number = x;
  return append(v);
}

int Builder::column_index(int64_t width) {
  Value v;
  v.prim = Prim::column_index;
  v.extent = {false, width};
  v.dtype = computes_;
  return append(v);
}

int Builder::row_position(int64_t modulus) {
  Value v;
  v.prim = Prim::row_position;
  v.extent = {true, 1};
  v.dtype = computes_;
  v.size = modulus;
  return append(v);
}

int Builder::unary(Prim p, int a) {
  Value v;
  v.prim = p;
  v.dtype = computes_;
  v.a = a;
  extent_of(g_, v, v.extent);
  if (p == Prim::neg && g_[a].prim == Prim::neg) return g_[a].a;
  if (g_[a].prim == Prim::expand && p >= Prim::neg && p <= Prim::relu)
    return expand(unary(p, g_[a].a), g_[a].extent);
  if (const int folded = fold(v); folded >= 0) return folded;
  return append(v);
}

int Builder::binary(Prim p, int a, int b) {
  Value v;
  v.prim = p;
  v.dtype = computes_;
  v.a = a;
  v.b = b;
  extent_of(g_, v, v.extent);
  if (const int folded = fold(v); folded >= 0) return folded;
  const auto is = [&](int i, double x) { return g_[i].prim == Prim::constant && g_[i].number == x; };
  // Exact for every number, NaN and the signed zeros among them.
  if ((p == Prim::mul || p == Prim::div) && is(b, 1)) return a;
  if (p == Prim::mul && is(a, 1)) return b;
  if (p == Prim::sub && is(b, 0)) return a;
  // Before it is broadcast, where that is less work.
  const auto source = [&](int i) { return g_[i].prim == Prim::expand ? g_[i].a : i; };
  if (source(a) != a || source(b) != b) {
    const Extent thin = joined(p, g_[source(a)].extent, g_[source(b)].extent);
    if (thin != v.extent) return expand(binary(p, source(a), source(b)), v.extent);
  }
  // What is broadcast anyway needs no copy of itself.
  const auto widened = [&](int i, int other) {
    return g_[i].prim == Prim::expand && g_[other].extent == v.extent ? g_[i].a : i;
  };
  const int thin = widened(a, b);
  v.b = widened(b, a);
  v.a = thin;
  if (v.a > v.b && (p == Prim::add || p == Prim::mul || p == Prim::equal)) std::swap(v.a, v.b);
  return append(v);
}

int Builder::select(int condition, int a, int b) {
  Value v;
  v.prim = Prim::select;
  v.dtype = computes_;
  v.a = condition;
  v.b = a;
  v.c = b;
  extent_of(g_, v, v.extent);
  if (const int folded = fold(v); folded >= 0) return folded;
  return append(v);
}

int Builder::round(int a, DType dtype) {
  if (g_[a].dtype == dtype || dtype == computes_) return a;
  Value v;
  v.prim = Prim::round;
  v.extent = g_[a].extent;
  v.dtype = dtype;
  v.a = a;
  return append(v);
}

int Builder::expand(int a, Extent to) {
  if (g_[a].extent == to) return a;
  (void)joined(Prim::expand, g_[a].extent, to);
  Value v;
  v.prim = Prim::expand;
  v.extent = to;
  v.dtype = computes_;
  v.a = g_[a].prim == Prim::expand ? g_[a].a : a;
  return append(v);
}

int Builder::rotate(int a, int table, int64_t head, bool interleaved) {
  const Value& t = g_[table];
  if (t.period < 1 || t.extent.width != head || head % 2 != 0 || g_[a].extent.width % head != 0)
    throw Error(cat("[compile] rotate of ", text_of(g_[a].extent), " in heads of ", head, " by a table ",
                    text_of(t.extent)));
  Value v;
  v.prim = Prim::rotate;
  v.extent = g_[a].extent;
  v.dtype = computes_;
  v.a = a;
  v.b = table;
  v.size = head;
  v.period = t.period;
  v.flag = interleaved;
  return append(v);
}

int Builder::pick(int a, int column) {
  if (g_[column].extent != Extent{true, 1})
    throw Error(
        cat("[compile] pick by ", text_of(g_[column].extent), "; a column number for each row is needed"));
  Value v;
  v.prim = Prim::pick;
  v.extent = {true, 1};
  v.dtype = computes_;
  v.a = a;
  v.b = column;
  return append(v);
}

int Builder::row_sum(int a) {
  const Extent e = g_[a].extent;
  if (e.width == 1) return a;
  if (g_[a].prim == Prim::expand && g_[g_[a].a].extent.width == 1)
    return expand(mul(g_[a].a, number(static_cast<double>(e.width))), {e.rows, 1});
  return unary(Prim::row_sum, a);
}

int Builder::softmax(int a) { return unary(Prim::softmax, a); }

int Builder::row_lse(int a) { return g_[a].extent.width == 1 ? a : unary(Prim::row_lse, a); }

int Builder::column_sum(int a) {
  if (!g_[a].extent.rows)
    throw Error(cat("[compile] column_sum of ", text_of(g_[a].extent), ", which has one row"));
  return unary(Prim::column_sum, a);
}

std::string text_of(Extent e) { return cat("[", e.rows ? "R" : "1", ", ", e.width, "]"); }

std::string text_of(const Graph& g, int i) {
  const Value& v = g[i];
  std::string line = cat("%", i, " = ", name_of(v.prim));
  if (v.prim == Prim::input) line += cat(" ", v.index);
  if (v.prim == Prim::constant) line += cat(" ", v.number);
  for_operands(v, [&](int o) { line += cat(" %", o); });
  if (v.prim == Prim::row_position) line += cat(" mod ", v.size);
  if (v.prim == Prim::rotate) line += cat(" heads of ", v.size, v.flag ? ", neighbours" : ", halves");
  line += cat("  ", text_of(v.extent));
  if (v.prim == Prim::input || v.prim == Prim::round) line += cat(" ", name_of(v.dtype));
  if (v.op[0] != 0) line += cat("  (", v.op, ")");
  return line;
}

void check_graph(const Graph& g) {
  for (int i = 0; i < g.size(); ++i) {
    const Value& v = g[i];
    int operands = 0;
    for_operands(v, [&](int o) {
      ++operands;
      if (o >= i) throw Error(cat("[compile] value ", i, " reads value ", o, ", which comes after it"));
    });
    if (operands != operands_of(v.prim))
      throw Error(
          cat("[compile] ", name_of(v.prim), " has ", operands, " operands, not ", operands_of(v.prim)));
    Extent e;
    if (extent_of(g, v, e) && e != v.extent)
      throw Error(cat("[compile] ", text_of(g, i), " is ", text_of(e), " by its operands"));
  }
  for (const int o : g.outputs)
    if (o < 0 || o >= g.size()) throw Error(cat("[compile] output ", o, " is no value"));
}

}  // namespace kiln::compile
