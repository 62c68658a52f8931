#include "ops/cross_entropy/cross_entropy.h"

#include "ops/cases/bench_case.h"

namespace kiln {

std::vector<OpCase> cross_entropy_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  auto one = [&](std::string name, const Shape& logits, int64_t ignore_every, int64_t padding = 0,
                 float scale = 1) {
    Shape targets;
    for (int i = 0; i + 1 < logits.rank(); ++i) targets.push_back(logits[i]);
    CaseInput ids{"targets", K::ids, targets};
    ids.ids_below = logits.last();
    ids.ignore_every = ignore_every;
    cases.push_back({"cross_entropy",
                     std::move(name),
                     {{"logits", K::activation, logits, scale, padding}, ids},
                     [](RankContext& ctx, std::span<const CaseArgument> in) {
                       return cross_entropy(ctx, in[0].tensor, in[1].tensor);
                     }});
  };
  one("1x1", {1, 1}, 0);
  one("3x63", {3, 63}, 0);
  one("2x5x65_some_ignored", {2, 5, 65}, 3);
  one("all_ignored", {4, 7}, 1);
  one("large_logits", {3, 31}, 0, 0, 30);
  one("127x1009", {127, 1009}, 5);
  one("strided", {6, 33}, 0, 7);
  one("more_than_a_block", {3, 2051}, 0);
  one("whole_packs", {5, 128}, 2);
  one("rows_at_every_place", {19, 257}, 4);
  one("longer_than_a_round", {2, 9001}, 0);
  return cases;
}

OpBench cross_entropy_bench() {
  using K = CaseInput::Kind;
  return {"cross_entropy",
          {},
          {{{"rows", 2048}, {"vocab", 10000}}},
          {{"rows", 64}},
          [](const BenchShape& s) {
            CaseInput ids{"targets", K::ids, {s["rows"]}};
            ids.ids_below = s["vocab"];
            return OpCase{"cross_entropy",
                          s.str(),
                          {{"logits", K::activation, {s["rows"], s["vocab"]}}, ids},
                          [](RankContext& ctx, std::span<const CaseArgument> in) {
                            return cross_entropy(ctx, in[0].tensor, in[1].tensor);
                          }};
          },
          {{"forward", Pass::forward}, {"backward", Pass::backward}},
          [](const BenchShape& s, const Sampling& sampling) {
            const OpBench bench = cross_entropy_bench();
            const auto make = [&](int64_t rows) {
              BenchShape some = s;
              some.set("rows", rows);
              return bench.make(some);
            };
            SampledCase c = sample_rows(make, s["rows"], static_cast<double>(s["vocab"]), sampling);
            c.parts[0].outputs = {Slice::whole()};  // one loss, of the rows whose targets are not ignored
            c.elsewhere = {std::nullopt, kIgnoreTarget};
            return c;
          }};
}

}  // namespace kiln
