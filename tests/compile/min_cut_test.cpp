// What forward keeps: the minimum cut against every choice there is, on small random graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "compile/max_flow.h"
#include "compile/save_or_recompute.h"

namespace kiln::compile {
namespace {

// Of a choice of what is made again; infinite where it needs what cannot be made.
double cost_of(const Derived& d, const std::vector<int>& needed, const KeepCosts& costs, unsigned remade) {
  std::vector<char> wanted(static_cast<std::size_t>(d.forward), 0);
  for (const int v : needed) wanted[static_cast<std::size_t>(v)] = 1;
  double total = 0;
  for (int v = d.forward - 1; v >= 0; --v) {
    const auto at = static_cast<std::size_t>(v);
    if (!wanted[at]) continue;
    if ((remade >> v & 1u) == 0) {
      total += costs.keep[at];
      continue;
    }
    total += costs.remake[at];
    for_operands(d.graph[v], [&](int o) { wanted[static_cast<std::size_t>(o)] = 1; });
  }
  return total;
}

TEST(MinCut, IsTheBestOfAllChoices) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    Derived d;
    Builder b(d.graph, DType::f32);
    const int inputs = 1 + static_cast<int>(random() % 2);
    for (int i = 0; i < inputs; ++i) b.input({true, 8}, DType::f32);
    const int values = inputs + 1 + static_cast<int>(random() % 8);
    while (d.graph.size() < values) {  // appended as they are: equal values stay apart
      Value v;
      v.prim = random() % 2 == 0 ? Prim::exp : Prim::add;
      v.extent = {true, 8};
      v.a = static_cast<int>(random() % static_cast<uint64_t>(d.graph.size()));
      if (v.prim == Prim::add) v.b = static_cast<int>(random() % static_cast<uint64_t>(d.graph.size()));
      d.graph.values.push_back(v);
    }
    d.forward = d.graph.size();
    KeepCosts costs;
    std::vector<int> needed;
    for (int v = 0; v < d.forward; ++v) {
      costs.keep.push_back(static_cast<double>(random() % 16));
      costs.remake.push_back(v < inputs ? MaxFlow::kNever : static_cast<double>(random() % 8));
      if (random() % 3 == 0) needed.push_back(v);
    }
    double best = MaxFlow::kNever;
    for (unsigned choice = 0; choice < 1u << d.forward; ++choice)
      best = std::min(best, cost_of(d, needed, costs, choice));
    const Kept kept = choose_kept(d, needed, costs);
    ASSERT_DOUBLE_EQ(kept.seconds, best) << "seed " << seed;
    unsigned remade = (1u << d.forward) - 1;
    for (const int v : kept.values) remade &= ~(1u << v);
    ASSERT_DOUBLE_EQ(cost_of(d, needed, costs, remade), best)
        << "what is kept at seed " << seed << " is no best choice";
  }
}

TEST(MinCut, ACheapSumIsMadeAgainAndADearOneKept) {
  Derived d;
  Builder b(d.graph, DType::f32);
  const int x = b.input({true, 64}, DType::f32), y = b.add(x, x), e = b.unary(Prim::exp, y);
  d.forward = d.graph.size();
  const std::vector<int> needed = {y, e};
  EXPECT_EQ(choose_kept(d, needed, {{1, 4, 4}, {MaxFlow::kNever, 0.5, 0.5}}).values, std::vector<int>{x});
  EXPECT_EQ(choose_kept(d, needed, {{1, 4, 4}, {MaxFlow::kNever, 0.5, 9}}).values, (std::vector<int>{x, e}));
  EXPECT_EQ(choose_kept(d, needed, {{100, 1, 4}, {MaxFlow::kNever, 0.5, 9}}).values,
            (std::vector<int>{y, e}));
}

}  // namespace
}  // namespace kiln::compile
