#include "compile/simplify.h"

namespace kiln::compile {
namespace {

std::vector<char> needed_by(const Graph& g, std::span<const int> outputs) {
  std::vector<char> needed(g.values.size(), 0);
  for (const int o : outputs) needed[static_cast<std::size_t>(o)] = 1;
  for (int i = g.size() - 1; i >= 0; --i) {
    if (needed[static_cast<std::size_t>(i)])
      for_operands(g[i], [&](int o) { needed[static_cast<std::size_t>(o)] = 1; });
  }
  return needed;
}

}  // namespace

Pruned prune(const Graph& g, std::span<const int> outputs, DType computes) {
  std::vector<char> needed = needed_by(g, outputs);
  for (const int i : g.inputs) needed[static_cast<std::size_t>(i)] = 1;
  Pruned p;
  p.moved.assign(g.values.size(), -1);
  Builder build(p.graph, computes);
  p.graph.inputs.assign(g.inputs.size(), -1);
  for (int i = 0; i < g.size(); ++i) {
    if (!needed[static_cast<std::size_t>(i)]) continue;
    Value v = g[i];
    for (int* o : {&v.a, &v.b, &v.c})
      if (*o >= 0) *o = p.moved[static_cast<std::size_t>(*o)];
    p.moved[static_cast<std::size_t>(i)] = build.append(v);
    if (v.prim == Prim::input) p.graph.inputs[static_cast<std::size_t>(v.index)] = p.graph.size() - 1;
  }
  for (const int o : outputs) p.graph.outputs.push_back(p.moved[static_cast<std::size_t>(o)]);
  return p;
}

bool is_minimal(const Graph& g) {
  const std::vector<char> needed = needed_by(g, g.outputs);
  for (int i = 0; i < g.size(); ++i) {
    if (g[i].prim == Prim::input) continue;
    if (!needed[static_cast<std::size_t>(i)]) return false;
    for (int j = 0; j < i; ++j) {
      Value a = g[i], b = g[j];
      a.op = b.op = "";
      if (a == b) return false;
    }
  }
  return true;
}

}  // namespace kiln::compile
