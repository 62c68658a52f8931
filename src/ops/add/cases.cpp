#include "ops/add/add.h"

#include "ops/cases/bench_case.h"

namespace kiln {

std::vector<OpCase> add_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  auto one = [&](std::string name, const Shape& shape, int64_t padding) {
    cases.push_back({"add",
                     std::move(name),
                     {{"a", K::activation, shape, 1, padding}, {"b", K::activation, shape}},
                     [](RankContext& ctx, std::span<const CaseArgument> in) {
                       return add(ctx, in[0].tensor, in[1].tensor);
                     }});
  };
  one("1x1", {1, 1}, 0);
  one("3x63", {3, 63}, 0);
  one("2x5x65_strided", {2, 5, 65}, 3);
  one("0x8", {0, 8}, 0);
  one("7x1031", {7, 1031}, 0);
  one("9x72", {9, 72}, 0);  // whole 16 bytes a row in every dtype
  one("2x3x136_strided", {2, 3, 136}, 8);
  one("3x64_rows_at_odd_places", {3, 64}, 1);
  cases.push_back({"add",
                   "same_input_twice",
                   {{"a", K::activation, {4, 31}}},
                   [](RankContext& ctx, std::span<const CaseArgument> in) {
                     return add(ctx, in[0].tensor, in[0].tensor);
                   }});
  return cases;
}

OpBench add_bench() {
  using K = CaseInput::Kind;
  return {"add",
          {},
          {{{"rows", 8192}, {"cols", 2048}}},
          {{"rows", 64}},
          [](const BenchShape& s) {
            const Shape shape{s["rows"], s["cols"]};
            return OpCase{"add",
                          s.str(),
                          {{"a", K::activation, shape}, {"b", K::activation, shape}},
                          [](RankContext& ctx, std::span<const CaseArgument> in) {
                            return add(ctx, in[0].tensor, in[1].tensor);
                          }};
          },
          {{"forward", Pass::forward}}};  // its gradient is passed on, not computed
}

}  // namespace kiln
