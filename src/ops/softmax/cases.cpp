#include "ops/softmax/softmax.h"

#include "ops/cases/bench_case.h"

namespace kiln {

std::vector<OpCase> softmax_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  auto one = [&](std::string name, const Shape& x, int64_t padding = 0, float scale = 1) {
    cases.push_back(
        {"softmax",
         std::move(name),
         {{"x", K::activation, x, scale, padding}},
         [](RankContext& ctx, std::span<const CaseArgument> in) { return softmax(ctx, in[0].tensor); }});
  };
  one("1x1", {1, 1});
  one("3x63", {3, 63});
  one("2x5x65_strided", {2, 5, 65}, 7);
  one("33x127", {33, 127});
  one("2x1031", {2, 1031});
  one("peaked", {5, 17}, 0, 4);
  one("0x16", {0, 16});
  one("9x8", {9, 8});  // whole 16 bytes a row in every dtype: a warp's row, partly and all of it
  one("2x3x488_strided", {2, 3, 488}, 8, 2);
  one("3x64_rows_at_odd_places", {3, 64}, 1);
  one("5x1096", {5, 1096});  // a block's
  one("2x8192", {2, 8192});  // 32 KiB in fp32
  return cases;
}

OpBench softmax_bench() {
  using K = CaseInput::Kind;
  return {"softmax", {}, {{{"rows", 8192}, {"cols", 2048}}}, {{"rows", 64}}, [](const BenchShape& s) {
            const Shape shape{s["rows"], s["cols"]};
            return OpCase{"softmax",
                          s.str(),
                          {{"x", K::activation, shape}},
                          [](RankContext& ctx, std::span<const CaseArgument> in) {
                            return softmax(ctx, in[0].tensor);
                          }};
          }};
}

}  // namespace kiln
