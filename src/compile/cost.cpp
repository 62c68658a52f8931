#include "compile/cost.h"

namespace kiln::compile {

double flops_of(Prim p) {
  switch (p) {
    case Prim::input:
    case Prim::constant:
    case Prim::column_index:
    case Prim::row_position:
    case Prim::expand:
    case Prim::pick:
      return 0;
    case Prim::exp:
    case Prim::log:
      return 12;
    case Prim::sigmoid:
      return 15;
    case Prim::row_lse:
    case Prim::softmax:
      return 15;
    case Prim::rsqrt:
    case Prim::rotate:
      return 3;
    default:
      return 1;
  }
}

double elements(Extent e, int64_t rows) {
  return static_cast<double>(e.rows ? rows : 1) * static_cast<double>(e.width);
}

double flops_of(const Graph& g, const Value& v, int64_t rows) {
  const bool reduces = v.prim == Prim::row_sum || v.prim == Prim::row_lse || v.prim == Prim::column_sum;
  return flops_of(v.prim) * elements(reduces ? g[v.a].extent : v.extent, rows);
}

double bytes_of(const Value& v, int64_t rows) {
  if (v.period > 0 && v.prim == Prim::input)
    return static_cast<double>(v.period * v.extent.width) * static_cast<double>(size_of(v.dtype));
  return elements(v.extent, rows) * static_cast<double>(size_of(v.dtype));
}

}  // namespace kiln::compile
