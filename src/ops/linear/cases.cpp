#include "ops/linear/linear.h"

#include <algorithm>

#include "ops/cases/bench_case.h"

namespace kiln {

std::vector<OpCase> linear_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  auto one = [&](std::string name, const Shape& x, int64_t out, int64_t padding = 0) {
    cases.push_back({"linear",
                     std::move(name),
                     {{"x", K::activation, x, 1, padding}, {"weight", K::param, {out, x.last()}, 0.3f}},
                     [](RankContext& ctx, std::span<const CaseArgument> in) {
                       return linear(ctx, in[0].tensor, *in[1].param);
                     }});
  };
  one("1x1_to_1", {1, 1}, 1);
  one("5x3_to_7", {5, 3}, 7);
  one("2x9x63_to_65", {2, 9, 63}, 65);
  one("33x127_to_129", {33, 127}, 129);
  one("16x64_to_32_strided", {16, 64}, 32, 8);
  one("17x31_to_13_strided_odd", {17, 31}, 13, 5);
  one("0x8_to_4", {0, 8}, 4);
  one("8x33_to_19", {8, 33}, 19);
  one("7x16_to_23_strided", {7, 16}, 23, 3);
  one("one_row_300x77", {1, 300}, 77);
  one("2x1x45_to_9", {2, 1, 45}, 9);
  one("deeper_than_a_block", {29, 401}, 33);
  one("more_rows_than_a_block", {403, 5}, 3);
  return cases;
}

namespace {

// Some rows of x against some rows of the weight, in runs: the first, the last, and some between. Of y that
// is a rectangle for each run; of dx the sum of all.
SampledCase sample_rectangles(const BenchShape& s, const Sampling& sampling) {
  constexpr int64_t kRun = 40, kRuns = 5;
  const OpBench bench = linear_bench();
  const int64_t rows = s["rows"], in = s["in"], out = s["out"];
  const auto make = [&](int64_t m, int64_t n) { return bench.make({{"rows", m}, {"in", in}, {"out", n}}); };
  if (out <= 2 * kRun || static_cast<double>(rows * in * out) <= sampling.work)
    return sample_rows([&](int64_t m) { return make(m, out); }, rows, static_cast<double>(in * out),
                       sampling);
  SampledCase c{make(rows, out), {}};
  const std::vector<int64_t> taken = sampling.pick(rows, static_cast<double>(in * kRun * kRuns));
  int64_t columns = 0;
  const Sampling runs{sampling.seed, static_cast<double>(kRuns), kRuns};
  for (const int64_t run : runs.pick((out + kRun - 1) / kRun, 1, 1)) {
    const int64_t begin = run * kRun, count = std::min(kRun, out - begin);
    columns += count;
    Slice weight, y{taken};
    for (int64_t n = begin; n < begin + count; ++n) weight.rows.push_back(n);
    y.col = begin;
    y.cols = count;
    c.parts.push_back(
        {make(static_cast<int64_t>(taken.size()), count), {{0, Slice{taken}}, {1, weight}}, {y}});
  }
  c.taken = static_cast<int64_t>(taken.size());
  c.total = rows;
  c.work = static_cast<double>(rows * out) / static_cast<double>(c.taken * columns);
  return c;
}

}  // namespace

OpBench linear_bench() {
  using K = CaseInput::Kind;
  return {"linear",
          {"matmul"},
          {{{"rows", 512}, {"in", 512}, {"out", 512}},
           {{"rows", 1024}, {"in", 1024}, {"out", 1024}},
           {{"rows", 2048}, {"in", 768}, {"out", 2304}}},
          {{"rows", 131}, {"in", 1100}, {"out", 530}},
          [](const BenchShape& s) {
            return OpCase{
                "linear",
                s.str(),
                {{"x", K::activation, {s["rows"], s["in"]}}, {"weight", K::param, {s["out"], s["in"]}, 0.3f}},
                [](RankContext& ctx, std::span<const CaseArgument> in) {
                  return linear(ctx, in[0].tensor, *in[1].param);
                }};
          },
          {{"forward", Pass::forward},
           {"dgrad", Pass::backward, {"x"}, 0.5},
           {"wgrad", Pass::backward, {"weight"}, 0.5}},
          sample_rectangles};
}

}  // namespace kiln
