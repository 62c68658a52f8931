#include "ops/batched_matmul/batched_matmul.h"

#include "ops/cases/bench_case.h"

namespace kiln {

std::vector<OpCase> batched_matmul_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  struct Dims {
    int64_t B, H, Hb, M, N, K;
  };
  // `stacked`: a and b are [B, heads, rows, cols]; else their heads are side by side in rows with padding.
  auto one = [&](std::string name, Dims d, bool transpose_b, bool stacked, bool y_in_columns,
                 int64_t padding = 0) {
    const int64_t b_rows = transpose_b ? d.N : d.K, b_cols = transpose_b ? d.K : d.N;
    const Shape a = stacked ? Shape{d.B, d.H, d.M, d.K} : Shape{d.B, d.M, d.H * d.K};
    const Shape b = stacked ? Shape{d.B, d.Hb, b_rows, b_cols} : Shape{d.B, b_rows, d.Hb * b_cols};
    const BatchedMatmulOptions o{
        .heads = d.H, .b_heads = d.Hb, .transpose_b = transpose_b, .y_in_columns = y_in_columns};
    cases.push_back({"batched_matmul",
                     std::move(name),
                     {{"a", K::activation, a, 1, padding}, {"b", K::activation, b, 0.3f, 2 * padding}},
                     [o](RankContext& ctx, std::span<const CaseArgument> in) {
                       return batched_matmul(ctx, in[0].tensor, in[1].tensor, o);
                     }});
  };
  one("one_by_one", {1, 1, 1, 1, 1, 1}, false, true, false);
  one("plain_batch", {3, 1, 1, 5, 7, 9}, false, false, true);
  one("plain_batch_transposed", {3, 1, 1, 5, 7, 9}, true, false, true);
  one("stacked_to_columns", {2, 3, 3, 17, 13, 33}, false, true, true);
  one("scores_of_packed_rows", {2, 4, 4, 17, 19, 8}, true, false, false, 5);
  one("scores_of_grouped_heads", {1, 6, 2, 13, 31, 16}, true, false, false, 3);
  one("values_of_one_shared_head", {2, 3, 1, 9, 20, 11}, false, true, true);
  one("grouped_in_columns", {1, 4, 2, 7, 5, 65}, false, false, true, 7);
  one("deeper_than_a_block", {1, 2, 1, 29, 33, 401}, true, true, false);
  one("no_rows", {2, 2, 1, 0, 3, 4}, true, false, false);
  one("nothing_to_sum", {2, 2, 1, 3, 5, 0}, false, true, false);
  return cases;
}

OpBench batched_matmul_bench() {
  using K = CaseInput::Kind;
  return {
      "batched_matmul",
      {"bmm"},
      // the scores and the values of attention, 12 heads of 64 over 512 tokens
      {{{"batch", 1}, {"heads", 12}, {"m", 512}, {"n", 512}, {"k", 64}, {"transposed", 1}},
       {{"batch", 1}, {"heads", 12}, {"m", 512}, {"n", 64}, {"k", 512}, {"transposed", 0}}},
      {{"batch", 1}, {"heads", 3}, {"m", 131}, {"n", 270}, {"k", 530}},
      [](const BenchShape& s) {
        const bool transposed = s["transposed"] != 0;
        const Shape a{s["batch"], s["heads"], s["m"], s["k"]},
            b{s["batch"], s["heads"], transposed ? s["n"] : s["k"], transposed ? s["k"] : s["n"]};
        const BatchedMatmulOptions o{
            .heads = s["heads"], .b_heads = s["heads"], .transpose_b = transposed, .y_in_columns = false};
        return OpCase{"batched_matmul",
                      s.str(),
                      {{"a", K::activation, a}, {"b", K::activation, b, 0.3f}},
                      [o](RankContext& ctx, std::span<const CaseArgument> in) {
                        return batched_matmul(ctx, in[0].tensor, in[1].tensor, o);
                      }};
      },
      {{"forward", Pass::forward}, {"backward", Pass::backward}},
      [](const BenchShape& s, const Sampling& sampling) {  // rows of a in the first, last and random heads
        const OpBench bench = batched_matmul_bench();
        const int64_t M = s["m"], b_rows = s["transposed"] != 0 ? s["n"] : s["k"];
        SampledCase c{bench.make(s), {}};
        const auto work = static_cast<double>(s["n"] * s["k"]);
        for (const int64_t at : sampling.pick(s["batch"] * s["heads"] * M, 4 * work + kCallOfNaive)) {
          const int64_t head = at / M;
          BenchShape one = s;
          one.set("batch", 1);
          one.set("heads", 1);
          one.set("m", 1);
          Slice b;
          for (int64_t r = 0; r < b_rows; ++r) b.rows.push_back(head * b_rows + r);
          c.parts.push_back({bench.make(one), {{0, Slice{{at}}}, {1, b}}, {Slice{{at}}}});
        }
        c.taken = static_cast<int64_t>(c.parts.size());
        c.total = s["batch"] * s["heads"] * M;
        return c;
      }};
}

}  // namespace kiln
