#include "compile/fuse.h"

#include <algorithm>

namespace kiln::compile {
namespace {

bool contains(const std::vector<int>& list, int v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

class Fuser {
 public:
  Fuser(const Graph& g, int64_t rows) : p_{g, {}, {}, rows} {
    const auto n = g.values.size();
    depth_.assign(n, 0);
    anywhere_.assign(n, 0);
    for (int i = 0; i < g.size(); ++i) {
      const Value& v = g[i];
      int depth = 0;
      bool anywhere = !v.extent.rows || v.prim == Prim::row_position;
      for_operands(v, [&](int o) {
        const auto at = static_cast<std::size_t>(o);
        depth = std::max(depth, depth_[at] + (g[o].prim == Prim::column_sum ? 1 : 0));
        anywhere = anywhere && anywhere_[at];
      });
      depth_[static_cast<std::size_t>(i)] = depth;
      // Inputs are in memory; one-row values that depend on no sum over the rows are made where they are
      // read.
      anywhere_[static_cast<std::size_t>(i)] =
          static_cast<char>(v.prim == Prim::input || (anywhere && v.prim != Prim::column_sum));
      deepest_ = std::max(deepest_, depth);
    }
  }

  Program run() {
    for (int d = 0; d <= deepest_; ++d) level(d);
    stores();
    for (Kernel& k : p_.kernels) count(k);
    return std::move(p_);
  }

 private:
  bool stored(int v) const { return contains(p_.graph.outputs, v); }

  // All values of a depth that something needs, and with them what can be made anywhere.
  void level(int d) {
    Kernel k;
    std::vector<char> made(p_.graph.values.size(), 0);
    for (int i = 0; i < p_.graph.size(); ++i) {
      if (depth_[static_cast<std::size_t>(i)] == d && !anywhere_[static_cast<std::size_t>(i)])
        want(i, d, made);
    }
    for (const int o : p_.graph.outputs) {  // an output that is made anywhere is stored by the first kernel
      if (d == 0 && anywhere_[static_cast<std::size_t>(o)]) want(o, d, made);
    }
    for (int i = 0; i < p_.graph.size(); ++i) {
      const Value& v = p_.graph[i];
      if (!made[static_cast<std::size_t>(i)]) continue;
      if (made[static_cast<std::size_t>(i)] == 2) {
        k.loads.push_back(i);
        continue;
      }
      const bool of_rows = v.extent.rows || v.prim == Prim::column_sum;
      (of_rows ? k.values : k.shared).push_back(i);
    }
    if (k.values.empty() && k.shared.empty() && k.loads.empty()) return;
    k.rows = !k.values.empty() || any_rows(k.loads);
    if (!p_.kernels.empty()) k.why = reason(k);
    p_.kernels.push_back(std::move(k));
  }

  bool any_rows(const std::vector<int>& loads) const {
    return std::any_of(loads.begin(), loads.end(), [&](int v) { return p_.graph[v].extent.rows; });
  }

  // 1: made in this kernel, 2: read from memory.
  void want(int v, int d, std::vector<char>& made) {
    char& m = made[static_cast<std::size_t>(v)];
    if (m) return;
    const Value& value = p_.graph[v];
    const bool earlier = !anywhere_[static_cast<std::size_t>(v)] &&
                         (depth_[static_cast<std::size_t>(v)] < d ||
                          (value.prim == Prim::column_sum && depth_[static_cast<std::size_t>(v)] != d));
    if (value.prim == Prim::input || earlier) {
      m = 2;
      return;
    }
    m = 1;
    for_operands(value, [&](int o) { want(o, d, made); });
  }

  std::string reason(const Kernel& k) const {
    for (const int v : k.loads) {
      if (p_.graph[v].prim == Prim::column_sum)
        return cat("a sum over all rows (%", v, ", of ", p_.graph[v].op, ") must be whole before it is read");
    }
    return "reads what an earlier kernel made";
  }

  // Outputs, and what a later kernel reads.
  void stores() {
    std::vector<char> done(p_.graph.values.size(), 0);
    for (std::size_t i = 0; i < p_.kernels.size(); ++i) {
      Kernel& k = p_.kernels[i];
      const auto store = [&](int v) {
        bool read = false;
        for (std::size_t j = i + 1; j < p_.kernels.size(); ++j)
          read = read || contains(p_.kernels[j].loads, v);
        if ((!read && !stored(v)) || done[static_cast<std::size_t>(v)]) return;
        done[static_cast<std::size_t>(v)] = 1;
        k.stores.push_back(v);
        if (!stored(v)) p_.between.push_back(v);
      };
      for (const int v : k.shared) store(v);
      for (const int v : k.values) store(v);
    }
  }

  void count(Kernel& k) const {
    const auto seen = [&](int v) {
      const std::string op = p_.graph[v].op;
      if (!op.empty() && std::find(k.ops.begin(), k.ops.end(), op) == k.ops.end()) k.ops.push_back(op);
    };
    for (const int v : k.loads) k.bytes += bytes_of(p_.graph[v], p_.rows);
    for (const int v : k.stores) k.bytes += bytes_of(p_.graph[v], p_.rows);
    for (const auto* list : {&k.shared, &k.values}) {
      for (const int v : *list) {
        k.flops += flops_of(p_.graph, p_.graph[v], p_.rows);
        seen(v);
      }
    }
  }

  Program p_;
  std::vector<int> depth_;
  std::vector<char> anywhere_;
  int deepest_ = 0;
};

}  // namespace

double Program::bytes() const {
  double sum = 0;
  for (const Kernel& k : kernels) sum += k.bytes;
  return sum;
}

double Program::flops() const {
  double sum = 0;
  for (const Kernel& k : kernels) sum += k.flops;
  return sum;
}

double Program::bytes_apart() const {
  double sum = 0;
  for (const Value& v : graph.values) {
    if (v.prim == Prim::input || v.prim == Prim::constant) continue;
    sum += bytes_of(v, rows);
    for_operands(v, [&](int o) {
      if (graph[o].prim != Prim::constant) sum += bytes_of(graph[o], rows);
    });
  }
  return sum;
}

Program fuse(const Graph& g, int64_t rows) { return Fuser(g, rows).run(); }

void check_program(const Program& p) {
  std::vector<char> in_memory(p.graph.values.size(), 0);
  for (int i = 0; i < p.graph.size(); ++i)
    in_memory[static_cast<std::size_t>(i)] = static_cast<char>(p.graph[i].prim == Prim::input);
  std::vector<int> stored(p.graph.values.size(), 0);
  for (const Kernel& k : p.kernels) {
    std::vector<char> here(p.graph.values.size(), 0);
    for (const int v : k.loads) {
      if (!in_memory[static_cast<std::size_t>(v)])
        throw Error(cat("[compile] value ", v, " is read before it is stored"));
      here[static_cast<std::size_t>(v)] = 1;
    }
    for (const auto* list : {&k.shared, &k.values}) {
      for (const int v : *list) {
        for_operands(p.graph[v], [&](int o) {
          if (!here[static_cast<std::size_t>(o)])
            throw Error(cat("[compile] value ", v, " reads ", o, " before it is made"));
          if (p.graph[o].prim == Prim::column_sum && contains(k.values, o))
            throw Error(cat("[compile] value ", v, " reads a sum over rows that its kernel still adds up"));
        });
        here[static_cast<std::size_t>(v)] = 1;
      }
    }
    for (const int v : k.stores) {
      in_memory[static_cast<std::size_t>(v)] = 1;
      ++stored[static_cast<std::size_t>(v)];
    }
  }
  for (const int o : p.graph.outputs) {
    const bool input = p.graph[o].prim == Prim::input;
    if (stored[static_cast<std::size_t>(o)] != 1 && !input)
      throw Error(cat("[compile] output ", o, " is stored ", stored[static_cast<std::size_t>(o)], " times"));
  }
}

}  // namespace kiln::compile
