#include "ops/rms_norm/rms_norm.h"

#include "ops/cases/bench_case.h"

namespace kiln {

std::vector<OpCase> rms_norm_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  auto one = [&](std::string name, const Shape& x, int64_t padding = 0, float scale = 1) {
    cases.push_back({"rms_norm",
                     std::move(name),
                     {{"x", K::activation, x, scale, padding}, {"weight", K::param, {x.last()}}},
                     [](RankContext& ctx, std::span<const CaseArgument> in) {
                       return rms_norm(ctx, in[0].tensor, *in[1].param, 1e-5f);
                     }});
  };
  one("1x1", {1, 1}, 0, 1e-3f);  // near 1 the gradient of x / |x| is all cancellation
  one("3x63", {3, 63});
  one("2x5x65_strided", {2, 5, 65}, 7);
  one("33x127", {33, 127});
  one("2x4096", {2, 4096});
  one("0x16", {0, 16});
  one("tiny_values", {3, 31}, 0, 1e-3f);
  one("2x3x488_strided", {2, 3, 488}, 8);  // whole 16 bytes a row in every dtype
  one("5x64_rows_at_odd_places", {5, 64}, 1);
  // More rows than the fused CUDA kernel has groups of threads: a warp a row; then, in fp32 backward, a
  // block.
  one("8501x8", {8501, 8});
  one("267x1032", {267, 1032});
  one("3x8192", {3, 8192});
  return cases;
}

OpBench rms_norm_bench() {
  using K = CaseInput::Kind;
  return {"rms_norm", {}, {{{"rows", 8192}, {"cols", 2048}}}, {{"rows", 64}}, [](const BenchShape& s) {
            return OpCase{"rms_norm",
                          s.str(),
                          {{"x", K::activation, {s["rows"], s["cols"]}}, {"weight", K::param, {s["cols"]}}},
                          [](RankContext& ctx, std::span<const CaseArgument> in) {
                            return rms_norm(ctx, in[0].tensor, *in[1].param, 1e-5f);
                          }};
          }};
}

}  // namespace kiln
