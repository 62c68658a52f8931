#include "ops/add_rms_norm/add_rms_norm.h"

#include "ops/add/add.h"
#include "ops/cases/bench_case.h"

namespace kiln {

std::vector<OpCase> add_rms_norm_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  // What becomes of the two outputs: each gets a gradient, both get the same, or one gets none.
  enum class Use { both, added, normed };
  auto one = [&](std::string name, const Shape& x, int64_t padding, Use use) {
    cases.push_back({"add_rms_norm",
                     std::move(name),
                     {{"x", K::activation, x, 1, padding},
                      {"residual", K::activation, x},
                      {"weight", K::param, {x.last()}}},
                     [use](RankContext& ctx, std::span<const CaseArgument> in) -> CaseOutputs {
                       const AddRmsNormResult r =
                           add_rms_norm(ctx, in[0].tensor, in[1].tensor, *in[2].param, 1e-5f);
                       if (use == Use::normed) return r.normed;
                       if (use == Use::added) return add(ctx, r.sum, r.normed);
                       return {r.sum, r.normed};
                     }});
  };
  one("3x63", {3, 63}, 0, Use::both);
  one("2x5x65_strided", {2, 5, 65}, 7, Use::both);
  one("9x33_added", {9, 33}, 0, Use::added);
  one("33x127_normed_only", {33, 127}, 0, Use::normed);
  one("257x31", {257, 31}, 0, Use::both);
  one("2x4099", {2, 4099}, 0, Use::both);
  one("2x3x136_strided", {2, 3, 136}, 8, Use::both);  // whole 16 bytes a row in every dtype
  one("2x2056_added", {2, 2056}, 0, Use::added);
  one("5x64_rows_at_odd_places", {5, 64}, 1, Use::both);
  one("8501x8", {8501, 8}, 0, Use::both);  // more rows than warps of the fused CUDA kernel
  one("0x16", {0, 16}, 0, Use::both);
  return cases;
}

OpBench add_rms_norm_bench() {
  using K = CaseInput::Kind;
  return {"add_rms_norm", {}, {{{"rows", 8192}, {"cols", 2048}}}, {{"rows", 64}}, [](const BenchShape& s) {
            const Shape shape{s["rows"], s["cols"]};
            return OpCase{"add_rms_norm",
                          s.str(),
                          {{"x", K::activation, shape},
                           {"residual", K::activation, shape},
                           {"weight", K::param, {shape.last()}}},
                          [](RankContext& ctx, std::span<const CaseArgument> in) {
                            const AddRmsNormResult r =
                                add_rms_norm(ctx, in[0].tensor, in[1].tensor, *in[2].param, 1e-5f);
                            return CaseOutputs{r.sum, r.normed};
                          }};
          }};
}

}  // namespace kiln
