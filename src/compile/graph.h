// The small typed graph that a region becomes: what the ops between matmuls compute, in primitives that know
// nothing of models. Every value is a matrix whose rows are those of the region (its tokens, say), or one row
// that all of them share:
//
//   [R, W]   a row each          [R, 1]   a number each (a statistic)
//   [1, W]   a weight            [1, 1]   one number
//
// Operands are broadcast to each other as these shapes suggest. Values are computed in fp32 (fp64 in a region
// of fp64) and keep that until something stores them; `round` is where a narrower format is part of the
// result.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace kiln::compile {

enum class Prim : uint8_t {
  input,         // a tensor of the region; `index` says which
  constant,      // `number`
  column_index,  // [1, W]: 0 .. W - 1
  row_position,  // [R, 1]: the row's number modulo `size`
  neg,
  exp,
  log,
  rsqrt,
  recip,
  sigmoid,
  relu,
  round,  // to `dtype`
  add,
  sub,
  mul,
  div,
  max,
  less,        // 1 where a < b, else 0
  equal,       // 1 where a == b, else 0
  select,      // b where a is not 0, else c
  expand,      // a, broadcast to this value's shape
  rotate,      // a's pairs turned by the angles of table b (graph.h, Value::flag)
  pick,        // [R, 1]: a's column b of each row; 0 where that is no column
  softmax,     // of each row; a row of -inf gives zeros
  row_sum,     // [R, W] -> [R, 1]
  row_lse,     // [R, W] -> [R, 1]: log(sum(exp(a))), by way of the row's maximum
  column_sum,  // [R, W] -> [1, W]
};
inline constexpr int kPrims = static_cast<int>(Prim::column_sum) + 1;

std::string_view name_of(Prim p);
int operands_of(Prim p);

struct Extent {
  bool rows = false;  // a row of its own for each row of the region
  int64_t width = 1;
  bool operator==(const Extent&) const = default;
};

struct Value {
  Prim prim = Prim::constant;
  Extent extent;
  DType dtype = DType::f32;  // input: as it is stored; round: the format; else what it is computed in
  int a = -1, b = -1, c = -1;
  int index = 0;  // input: which
  double number = 0;
  // row_position: the modulus. rotate: the width of a head; the table [period, size] has the cosines of a
  // position's pairs and then the sines, row r of the region being at position r % period.
  int64_t size = 0;
  int64_t period = 0;   // rotate, and input: rows of a table; 0: no table
  bool flag = false;    // rotate: pairs are neighbours (interleaved), else half a head apart
  const char* op = "";  // the op that it is a part of
  bool operator==(const Value&) const = default;
};

struct Graph {
  std::vector<Value> values;  // operands before users
  std::vector<int> inputs;    // the value of each tensor
  std::vector<int> outputs;

  const Value& operator[](int v) const { return values[static_cast<std::size_t>(v)]; }
  int size() const { return static_cast<int>(values.size()); }
};

// Calls f(operand) for each operand.
template <class F>
void for_operands(const Value& v, F f) {
  if (v.a >= 0) f(v.a);
  if (v.b >= 0) f(v.b);
  if (v.c >= 0) f(v.c);
}

// Appends values, checks and broadcasts their extents. A number is folded where all operands are numbers, and
// an equal value is not made twice.
class Builder {
 public:
  Builder(Graph& g, DType computes) : g_(g), computes_(computes) {}

  Graph& graph() { return g_; }
  void part_of(const char* op) { op_ = op; }
  const char* part() const { return op_; }
  Extent extent(int v) const { return g_[v].extent; }

  int input(Extent e, DType dtype);
  int table(int64_t period, int64_t width, DType dtype);
  int number(double x);
  int column_index(int64_t width);
  int row_position(int64_t modulus);
  int unary(Prim p, int a);
  int binary(Prim p, int a, int b);
  int select(int condition, int a, int b);
  int round(int a, DType dtype);
  int expand(int a, Extent to);
  int rotate(int a, int table, int64_t head, bool interleaved);
  int pick(int a, int column);
  int softmax(int a);
  int row_sum(int a);
  int row_lse(int a);
  int column_sum(int a);

  int neg(int a) { return unary(Prim::neg, a); }
  int add(int a, int b) { return binary(Prim::add, a, b); }
  int sub(int a, int b) { return binary(Prim::sub, a, b); }
  int mul(int a, int b) { return binary(Prim::mul, a, b); }
  int div(int a, int b) { return binary(Prim::div, a, b); }
  int append(Value v);  // as it is: what a pass copies

 private:
  int fold(const Value& v);

  Graph& g_;
  DType computes_;
  const char* op_ = "";
};

// "mul [R, 768]" and so on; with `g`, a line of a listing.
std::string text_of(Extent e);
std::string text_of(const Graph& g, int v);

// Throws Error if a value comes before its operands, an extent does not follow from them, or an output is
// none.
void check_graph(const Graph& g);

// The number that a primitive of numbers makes.
double evaluate(Prim p, double a, double b, double c);

}  // namespace kiln::compile
