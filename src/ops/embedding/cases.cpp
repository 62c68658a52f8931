#include "ops/embedding/embedding.h"

#include "base/rng.h"
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

namespace {

// A token is a row of the table: each sampled one by itself, with a table of its own row alone. Tokens that
// fall on the same row add up in its gradient.
SampledCase sample_tokens(const BenchShape& s, const Sampling& sampling) {
  const OpBench bench = embedding_bench();
  const int64_t rows = s["rows"], vocab = s["vocab"];
  SampledCase c{bench.make(s), {}};
  std::vector<double> ids(static_cast<std::size_t>(rows));
  const PhiloxKey key = philox_key(sampling.seed, "tokens");
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<double>(philox(key, i, 0).x % static_cast<uint64_t>(vocab));
  if (rows > 1) {  // the ends of the table
    ids.front() = 0;
    ids.back() = static_cast<double>(vocab - 1);
  }
  const OpCase one = bench.make({{"rows", 1}, {"vocab", 1}, {"cols", s["cols"]}});
  for (const int64_t at : sampling.pick(rows, static_cast<double>(s["cols"]) + kCallOfNaive)) {
    const Slice token{{at}}, row{{static_cast<int64_t>(ids[static_cast<std::size_t>(at)])}};
    c.parts.push_back({one, {{0, token, 0.0}, {1, row}}, {token}});
  }
  c.values = {ids};
  c.taken = static_cast<int64_t>(c.parts.size());
  c.total = rows;
  return c;
}

}  // namespace

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
          },
          {{"forward", Pass::forward}, {"backward", Pass::backward}},
          sample_tokens};
}

}  // namespace kiln
