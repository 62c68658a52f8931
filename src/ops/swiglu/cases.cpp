#include "ops/swiglu/swiglu.h"

#include "ops/cases/bench_case.h"

namespace kiln {

std::vector<OpCase> swiglu_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  auto one = [&](std::string name, const Shape& shape, int64_t padding = 0, float scale = 1) {
    cases.push_back(
        {"swiglu",
         std::move(name),
         {{"gate", K::activation, shape, scale, padding}, {"up", K::activation, shape, 1, padding}},
         [](RankContext& ctx, std::span<const CaseArgument> in) {
           return swiglu(ctx, in[0].tensor, in[1].tensor);
         }});
  };
  one("1x1", {1, 1});
  one("3x63", {3, 63});
  one("2x5x65_strided", {2, 5, 65}, 65);
  one("129x127", {129, 127});
  one("large_gates", {4, 33}, 0, 20);
  one("2x3x136_strided", {2, 3, 136}, 8);  // whole 16 bytes a row in every dtype
  one("0x8", {0, 8});
  return cases;
}

OpBench swiglu_bench() {
  using K = CaseInput::Kind;
  return {"swiglu", {}, {{{"rows", 4096}, {"cols", 3072}}}, {{"rows", 64}}, [](const BenchShape& s) {
            const Shape shape{s["rows"], s["cols"]};
            return OpCase{"swiglu",
                          s.str(),
                          {{"gate", K::activation, shape}, {"up", K::activation, shape}},
                          [](RankContext& ctx, std::span<const CaseArgument> in) {
                            return swiglu(ctx, in[0].tensor, in[1].tensor);
                          }};
          }};
}

}  // namespace kiln
