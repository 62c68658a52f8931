#include "ops/weighted_sum/weighted_sum.h"

#include "ops/cases/bench_case.h"

namespace kiln {

std::vector<OpCase> weighted_sum_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  auto one = [&](std::string name, const Shape& x, int64_t padding = 0) {
    cases.push_back({"weighted_sum",
                     std::move(name),
                     {{"x", K::activation, x, 1, padding}, {"weight", K::param, {x.last()}}},
                     [](RankContext& ctx, std::span<const CaseArgument> in) {
                       return weighted_sum(ctx, in[0].tensor, *in[1].param);
                     }});
  };
  one("1x1", {1, 1});
  one("3x63", {3, 63});
  one("16x64_one_tile", {16, 64});
  one("2x5x65_strided", {2, 5, 65}, 7);
  one("33x127", {33, 127});
  one("257x31", {257, 31});
  one("0x16", {0, 16});
  return cases;
}

OpBench weighted_sum_bench() {
  using K = CaseInput::Kind;
  return {"weighted_sum", {}, {{{"rows", 8192}, {"cols", 2048}}}, {{"rows", 64}}, [](const BenchShape& s) {
            const Shape shape{s["rows"], s["cols"]};
            return OpCase{"weighted_sum",
                          s.str(),
                          {{"x", K::activation, shape}, {"weight", K::param, {shape.last()}}},
                          [](RankContext& ctx, std::span<const CaseArgument> in) {
                            return weighted_sum(ctx, in[0].tensor, *in[1].param);
                          }};
          }};
}

}  // namespace kiln
