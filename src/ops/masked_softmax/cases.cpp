#include "ops/masked_softmax/masked_softmax.h"

#include <algorithm>

#include "ops/cases/bench_case.h"

namespace kiln {

std::vector<OpCase> masked_softmax_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  auto one = [&](std::string name, const Shape& x, bool causal, int64_t padding = 0, float scale = 1) {
    const MaskedSoftmaxOptions o{.scale = scale, .causal = causal};
    cases.push_back({"masked_softmax",
                     std::move(name),
                     {{"x", K::activation, x, 1, padding}},
                     [o](RankContext& ctx, std::span<const CaseArgument> in) {
                       return masked_softmax(ctx, in[0].tensor, o);
                     }});
  };
  one("1x1", {1, 1}, true);
  one("causal_7x7", {2, 3, 7, 7}, true);
  one("causal_5x67", {2, 5, 67}, true, 0, 0.25f);
  one("full_9x33_strided", {2, 9, 33}, false, 7, 0.5f);
  one("some_see_nothing", {3, 11, 4}, true);
  one("causal_70x130_strided", {70, 130}, true, 3, 2);
  one("no_keys", {2, 3, 0}, true);
  one("causal_24x24", {2, 24, 24}, true, 0, 0.5f);  // whole 16 bytes a row in every dtype
  one("some_see_nothing_of_16", {19, 16}, true);
  one("causal_9x1096_strided", {9, 1096}, true, 8, 2);
  one("full_3x200", {3, 200}, false);
  one("rows_at_odd_places", {5, 64}, true, 1);
  return cases;
}

OpBench masked_softmax_bench() {
  using K = CaseInput::Kind;
  return {"masked_softmax",
          {},
          {{{"heads", 12}, {"queries", 1024}, {"keys", 1024}, {"full", 0}}},
          {{"heads", 1}, {"queries", 130}},
          [](const BenchShape& s) {
            const MaskedSoftmaxOptions o{.scale = 0.125f, .causal = s["full"] == 0};
            return OpCase{"masked_softmax",
                          s.str(),
                          {{"x", K::activation, {s["heads"], s["queries"], s["keys"]}, 8}},
                          [o](RankContext& ctx, std::span<const CaseArgument> in) {
                            return masked_softmax(ctx, in[0].tensor, o);
                          }};
          },
          {{"forward", Pass::forward}, {"backward", Pass::backward}},
          [](const BenchShape& s, const Sampling& sampling) {  // a query and the keys it sees are one problem
            const OpBench bench = masked_softmax_bench();
            const int64_t Q = s["queries"], K = s["keys"],
                          hidden = s["full"] != 0 ? 0 : std::max<int64_t>(0, Q - K);
            SampledCase c{bench.make(s), {}};
            for (const int64_t at :
                 sampling.pick(s["heads"] * (Q - hidden), static_cast<double>(K) + kCallOfNaive)) {
              const int64_t q = hidden + at % (Q - hidden);
              const int64_t visible = s["full"] != 0 ? K : q + 1 + K - Q;
              BenchShape one = s;
              one.set("heads", 1);
              one.set("queries", 1);
              one.set("keys", visible);
              const Slice row{{at / (Q - hidden) * Q + q}, false, 0, visible};
              c.parts.push_back({bench.make(one), {{0, row}}, {row}});
            }
            c.taken = static_cast<int64_t>(c.parts.size());
            c.total = s["heads"] * (Q - hidden);
            return c;
          }};
}

}  // namespace kiln
