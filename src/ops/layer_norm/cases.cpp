#include "ops/layer_norm/layer_norm.h"

#include "ops/cases/bench_case.h"

namespace kiln {

std::vector<OpCase> layer_norm_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  auto one = [&](std::string name, const Shape& x, int64_t padding = 0, float scale = 1) {
    cases.push_back({"layer_norm",
                     std::move(name),
                     {{"x", K::activation, x, scale, padding},
                      {"weight", K::param, {x.last()}},
                      {"bias", K::param, {x.last()}}},
                     [](RankContext& ctx, std::span<const CaseArgument> in) {
                       return layer_norm(ctx, in[0].tensor, *in[1].param, *in[2].param, 1e-5f);
                     }});
  };
  one("3x63", {3, 63});
  one("2x5x65_strided", {2, 5, 65}, 7);
  one("257x31", {257, 31});
  one("2x4099", {2, 4099});
  one("0x16", {0, 16});
  one("tiny_values", {3, 29}, 0, 1e-3f);
  one("9x8", {9, 8});  // whole 16 bytes a row in every dtype: a warp's row, partly and all of it
  one("2x3x488_strided", {2, 3, 488}, 8);
  one("5x64_rows_at_odd_places", {5, 64}, 1);
  one("4301x8", {4301, 8});      // more rows than warps
  one("270x1096", {270, 1096});  // a block's, and more rows than blocks
  one("3x4096", {3, 4096});
  return cases;
}

OpBench layer_norm_bench() {
  using K = CaseInput::Kind;
  return {"layer_norm", {}, {{{"rows", 8192}, {"cols", 2048}}}, {{"rows", 64}}, [](const BenchShape& s) {
            const Shape shape{s["rows"], s["cols"]};
            return OpCase{"layer_norm",
                          s.str(),
                          {{"x", K::activation, shape},
                           {"weight", K::param, {shape.last()}},
                           {"bias", K::param, {shape.last()}}},
                          [](RankContext& ctx, std::span<const CaseArgument> in) {
                            return layer_norm(ctx, in[0].tensor, *in[1].param, *in[2].param, 1e-5f);
                          }};
          }};
}

}  // namespace kiln
