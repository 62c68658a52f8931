#include "ops/embedding/embedding.h"

#include "ops/cases/bench_case.h"

namespace kiln {

std::vector<OpCase> embedding_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  auto one = [&](std::string name, const Shape& tokens, int64_t vocab, int64_t cols) {
    CaseInput ids{"tokens", K::ids, tokens};
    ids.ids_below = vocab;
    cases.push_back({"embedding",
                     std::move(name),
                     {ids, {"weight", K::param, {vocab, cols}}},
                     [](RankContext& ctx, std::span<const CaseArgument> in) {
                       return embedding(ctx, in[0].tensor, *in[1].param);
                     }});
  };
  one("1_of_1", {1}, 1, 1);
  one("many_repeats", {2, 40}, 5, 33);
  one("some_rows_unused", {3, 7}, 101, 65);
  one("no_tokens", {0}, 3, 4);
  one("whole_packs", {3, 50}, 40, 24);
  one("one_hot_token", {2, 150}, 1, 16);
  one("hot_tokens_in_runs", {700}, 3, 40);
  one("wide_rows", {5}, 7, 2056);
  one("vocabulary_beyond_a_block", {40}, 1003, 8);
  one("no_tokens_whole_packs", {0}, 5, 8);
  return cases;
}

OpBench embedding_bench() {
  using K = CaseInput::Kind;
  return {"embedding",
          {},
          {{{"rows", 8192}, {"vocab", 10000}, {"cols", 1024}}},
          {{"rows", 256}, {"vocab", 1000}},
          [](const BenchShape& s) {
            CaseInput ids{"tokens", K::ids, {s["rows"]}};
            ids.ids_below = s["vocab"];
            return OpCase{"embedding",
                          s.str(),
                          {ids, {"weight", K::param, {s["vocab"], s["cols"]}}},
                          [](RankContext& ctx, std::span<const CaseArgument> in) {
                            return embedding(ctx, in[0].tensor, *in[1].param);
                          }};
          }};
}

}  // namespace kiln
