#include "compile/plan.h"

#include <algorithm>

#include "compile/simplify.h"

namespace kiln::compile {
namespace {

// Backward reads what is kept instead of making it.
Graph with_kept_as_inputs(const Derived& d, const std::vector<KeptTensor>& kept) {
  Graph g = d.graph;
  for (const KeptTensor& k : kept) {
    if (k.from == KeptTensor::From::tensor) continue;
    Value& v = g.values[static_cast<std::size_t>(k.value)];
    Value input;
    input.prim = Prim::input;
    input.extent = v.extent;
    input.dtype = v.dtype;
    input.op = v.op;
    input.index = static_cast<int>(g.inputs.size());
    v = input;
    g.inputs.push_back(k.value);
  }
  return g;
}

std::vector<KeptTensor> kept_tensors(const Traced& t, const Kept& choice) {
  std::vector<KeptTensor> kept;
  int extras = 0;
  for (const int v : choice.values) {
    const Value& value = t.graph[v];
    const auto& outputs = t.graph.outputs;
    const auto output = std::find(outputs.begin(), outputs.end(), v);
    if (value.prim == Prim::input) {
      kept.push_back({KeptTensor::From::tensor, value.index, v, cat("input ", value.index)});
    } else if (output != outputs.end()) {
      const auto index = static_cast<int>(output - outputs.begin());
      kept.push_back({KeptTensor::From::output, index, v, cat("output ", index)});
    } else {
      const char* op = value.op;
      kept.push_back({KeptTensor::From::extra, extras++, v, cat(name_of(value.prim), " of ", op)});
    }
  }
  return kept;
}

// A gradient in the format of its tensor: one that is only passed on is itself, where the formats are the
// same. It is rounded when it is stored and not before, for what is stored may be its sum with what is there.
int as_stored(Builder& b, int grad, const Value& of) {
  if (grad < 0 || b.graph()[grad].dtype == of.dtype) return grad;
  Value copy;
  copy.prim = Prim::expand;
  copy.extent = b.extent(grad);
  copy.dtype = of.dtype;
  copy.a = grad;
  copy.op = b.graph()[grad].op;
  return b.append(copy);
}

}  // namespace

Program plan_forward(const Traced& t) {
  return fuse(prune(t.graph, t.graph.outputs, t.computes).graph, t.rows);
}

RegionPlan plan_region(const Traced& t, std::vector<char> wanted, const Rates& rates) {
  RegionPlan plan;
  std::vector<char> of_inputs = wanted;
  of_inputs.resize(t.graph.inputs.size(), 0);
  Derived d = derive(t.graph, of_inputs, t.computes);
  Builder build(d.graph, t.computes);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Value input = t.graph[t.graph.inputs[i]];
    if (input.extent.rows) d.grads[i] = as_stored(build, d.grads[i], input);
  }
  const std::vector<int> needed = read_by_backward(d);
  plan.choice = choose_kept(d, needed, keep_costs(d, t.graph.outputs, t.rows, rates));
  plan.kept = kept_tensors(t, plan.choice);
  plan.wanted = std::move(wanted);
  plan.upstream = static_cast<int>(t.graph.inputs.size());

  std::vector<int> outputs = t.graph.outputs;
  for (const KeptTensor& k : plan.kept) {
    if (k.from != KeptTensor::From::extra) continue;
    outputs.push_back(k.value);
    plan.choice.bytes += bytes_of(t.graph[k.value], t.rows);
  }
  plan.forward = fuse(prune(t.graph, outputs, t.computes).graph, t.rows);

  const Graph whole = with_kept_as_inputs(d, plan.kept);
  std::vector<int> grads;
  for (const int g : d.grads)
    if (g >= 0) grads.push_back(g);
  const Pruned pruned = prune(whole, grads, t.computes);
  for (std::size_t i = 0; i < plan.wanted.size(); ++i) {
    const int g = d.grads[i];
    plan.grads.push_back(g < 0 ? -1 : pruned.moved[static_cast<std::size_t>(g)]);
  }
  plan.backward = fuse(pruned.graph, t.rows);
  return plan;
}

}  // namespace kiln::compile
