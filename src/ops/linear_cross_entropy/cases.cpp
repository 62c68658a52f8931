#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include "autograd/tape.h"
#include "ops/cases/bench_case.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace kiln {

std::vector<OpCase> linear_cross_entropy_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  auto one = [&](std::string name, const Shape& x, int64_t vocab, int64_t ignore_every, int64_t padding = 0,
                 int64_t chunk_rows = 0) {
    Shape rows;
    for (int i = 0; i + 1 < x.rank(); ++i) rows.push_back(x[i]);
    CaseInput ids{"targets", K::ids, rows};
    ids.ids_below = vocab;
    ids.ignore_every = ignore_every;
    cases.push_back(
        {"linear_cross_entropy",
         std::move(name),
         {{"x", K::activation, x, 1, padding}, {"weight", K::param, {vocab, x.last()}, 0.3f}, ids},
         [chunk_rows](RankContext& ctx, std::span<const CaseArgument> in) {
           return linear_cross_entropy(ctx, in[0].tensor, *in[1].param, in[2].tensor, {}, chunk_rows);
         }});
  };
  one("1x1_to_1", {1, 1}, 1, 0);
  one("5x3_to_7", {5, 3}, 7, 0);
  one("2x9x31_to_65_some_ignored", {2, 9, 31}, 65, 3);
  one("all_ignored", {4, 8}, 7, 1);
  one("17x16_to_127_strided", {17, 16}, 127, 0, 5);
  one("no_rows", {0, 8}, 4, 0);
  one("23x16_to_127_in_chunks", {23, 16}, 127, 4, 0, 5);
  one("9x8_to_64_row_by_row_strided", {9, 8}, 64, 0, 3, 1);
  one("2x7x24_to_1009_in_chunks", {2, 7, 24}, 1009, 0, 0, 6);
  one("3x8_to_33001_some_ignored", {3, 8}, 33001, 3);  // longer rows than the fused CUDA kernel holds
  // x is a part of a packed tensor: its gradient is a range of that one's columns.
  CaseInput ids{"targets", K::ids, {5}};
  ids.ids_below = 9;
  cases.push_back({"linear_cross_entropy",
                   "5x8_of_12_to_9",
                   {{"packed", K::activation, {5, 12}}, {"weight", K::param, {9, 8}, 0.3f}, ids},
                   [](RankContext& ctx, std::span<const CaseArgument> in) {
                     const Tensor x = split(ctx, in[0].tensor, {8, 4})[0];
                     return linear_cross_entropy(ctx, x, *in[1].param, in[2].tensor);
                   }});
  return cases;
}

OpBench linear_cross_entropy_bench() {
  using K = CaseInput::Kind;
  return {"linear_cross_entropy",
          {},
          {{{"rows", 1024}, {"in", 768}, {"vocab", 10000}}},
          {{"rows", 64}, {"in", 256}, {"vocab", 1000}},
          [](const BenchShape& s) {
            CaseInput ids{"targets", K::ids, {s["rows"]}};
            ids.ids_below = s["vocab"];
            return OpCase{"linear_cross_entropy",
                          s.str(),
                          {{"x", K::activation, {s["rows"], s["in"]}},
                           {"weight", K::param, {s["vocab"], s["in"]}, 0.05f},
                           ids},
                          [](RankContext& ctx, std::span<const CaseArgument> in) {
                            return linear_cross_entropy(ctx, in[0].tensor, *in[1].param, in[2].tensor);
                          }};
          },
          {{"forward", Pass::forward}, {"backward", Pass::backward}},
          [](const BenchShape& s, const Sampling& sampling) {
            const OpBench bench = linear_cross_entropy_bench();
            const auto make = [&](int64_t rows) {
              BenchShape some = s;
              some.set("rows", rows);
              return bench.make(some);
            };
            SampledCase c = sample_rows(make, s["rows"], static_cast<double>(s["in"] * s["vocab"]), sampling);
            c.parts[0].outputs = {Slice::whole()};  // one loss, of the rows whose targets are not ignored
            c.elsewhere = {std::nullopt, std::nullopt, kIgnoreTarget};
            return c;
          }};
}

}  // namespace kiln
