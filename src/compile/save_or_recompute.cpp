#include "compile/save_or_recompute.h"

#include <algorithm>

#include "compile/max_flow.h"

namespace kiln::compile {
namespace {

// Made from nothing that is stored.
bool is_free(const Value& v) {
  return v.prim == Prim::constant || v.prim == Prim::column_index || v.prim == Prim::row_position ||
         (v.prim == Prim::input && v.period > 0);
}

}  // namespace

KeepCosts keep_costs(const Derived& d, std::span<const int> outputs, int64_t rows, const Rates& rates) {
  KeepCosts c;
  for (int i = 0; i < d.forward; ++i) {
    const Value& v = d.graph[i];
    const double pass = bytes_of(v, rows) / rates.bytes;
    const bool there = v.prim == Prim::input || std::find(outputs.begin(), outputs.end(), i) != outputs.end();
    c.keep.push_back(is_free(v) ? 0 : there ? pass : 2 * pass);
    // A sum over all rows would need a kernel of its own.
    const bool never = v.prim == Prim::input || v.prim == Prim::column_sum;
    c.remake.push_back(never ? MaxFlow::kNever : flops_of(d.graph, v, rows) / rates.flops);
  }
  return c;
}

std::vector<int> read_by_backward(const Derived& d) {
  std::vector<char> needed(d.graph.values.size(), 0);
  for (const int g : d.grads)
    if (g >= 0) needed[static_cast<std::size_t>(g)] = 1;
  std::vector<int> read;
  for (int i = d.graph.size() - 1; i >= 0; --i) {
    if (!needed[static_cast<std::size_t>(i)]) continue;
    if (i < d.forward) {
      read.push_back(i);
    } else {
      for_operands(d.graph[i], [&](int o) { needed[static_cast<std::size_t>(o)] = 1; });
    }
  }
  std::reverse(read.begin(), read.end());
  return read;
}

Kept choose_kept(const Derived& d, std::span<const int> needed, const KeepCosts& costs) {
  // Node 2 v: the value is needed; 2 v + 1: it is made again. On the source's side: yes.
  const int n = d.forward, source = 2 * n, sink = 2 * n + 1;
  MaxFlow flow(2 * n + 2);
  for (const int v : needed) flow.edge(source, 2 * v, MaxFlow::kNever);
  for (int v = 0; v < n; ++v) {
    const auto at = static_cast<std::size_t>(v);
    if (costs.remake[at] == MaxFlow::kNever) {
      flow.edge(2 * v, sink, costs.keep[at]);
      continue;
    }
    flow.edge(2 * v, 2 * v + 1, costs.keep[at]);   // needed, and not made again: kept
    flow.edge(2 * v + 1, sink, costs.remake[at]);  // made again
    for_operands(d.graph[v], [&](int o) { flow.edge(2 * v + 1, 2 * o, MaxFlow::kNever); });
  }
  Kept kept;
  kept.seconds = flow.run(source, sink);
  for (int v = 0; v < n; ++v) {
    const bool made =
        costs.remake[static_cast<std::size_t>(v)] != MaxFlow::kNever && flow.with_source(2 * v + 1);
    if (flow.with_source(2 * v) && !made && !is_free(d.graph[v])) kept.values.push_back(v);
  }
  return kept;
}

}  // namespace kiln::compile
