#include "ops/rope/rope.h"
#include "ops/rope/sampled_rope.h"

#include "autograd/tape.h"
#include "ops/add/add.h"
#include "ops/cases/bench_case.h"

namespace kiln {

std::vector<OpCase> rope_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  auto one = [&](std::string name, const Shape& q, int64_t kv_width, RopeOptions o, int64_t padding = 0) {
    const Shape k{q[0], q[1], kv_width};
    cases.push_back({"rope",
                     std::move(name),
                     {{"q", K::activation, q, 1, padding}, {"k", K::activation, k, 1, 2 * padding}},
                     [o](RankContext& ctx, std::span<const CaseArgument> in) {
                       const RopeResult r = rope(ctx, in[0].tensor, in[1].tensor, o);
                       return CaseOutputs{r.q, r.k};
                     }});
  };
  one("one_token", {1, 1, 2}, 2, {});
  one("3_tokens_d6", {1, 3, 12}, 12, {.heads = 2, .kv_heads = 2});
  one("packed_rows_d16", {2, 7, 48}, 48, {.heads = 3, .kv_heads = 3}, 80);
  one("65_tokens_d2", {1, 65, 2}, 2, {});
  one("interleaved_d10", {2, 33, 20}, 20, {.heads = 2, .kv_heads = 2, .interleaved = true}, 3);
  one("grouped_heads_d34", {1, 5, 136}, 34, {.heads = 4, .kv_heads = 1});
  one("far_positions", {1, 67, 62}, 62, {.theta = 500000, .offset = 100003});
  using Kind = RopeScaling::Kind;
  one("linear_scaling_d10", {1, 21, 20}, 20,
      {.heads = 2, .kv_heads = 2, .offset = 40, .scaling = {.kind = Kind::linear, .factor = 4}});
  one("dynamic_scaling_d10", {1, 21, 20}, 20,
      {.heads = 2,
       .kv_heads = 2,
       .offset = 40,
       .scaling = {.kind = Kind::dynamic, .factor = 2, .trained = 16}});
  one("llama3_scaling_d32", {1, 21, 64}, 64,
      {.heads = 2,
       .kv_heads = 2,
       .theta = 500000,
       .offset = 9000,
       .scaling = {.kind = Kind::llama3, .factor = 8, .trained = 8192, .slow_turns = 1, .quick_turns = 4}});
  one("400_tokens_d4", {1, 400, 4}, 4, {});  // a table of more than a few coarse turns
  // Half heads of whole 16 bytes in every dtype.
  one("grouped_d64", {2, 5, 256}, 64, {.heads = 4, .kv_heads = 1, .offset = 3}, 8);
  one("interleaved_d32", {1, 9, 64}, 64, {.heads = 2, .kv_heads = 2, .interleaved = true});
  one("no_tokens", {2, 0, 8}, 8, {});
  cases.push_back({"rope",
                   "in_place",
                   {{"q", K::activation, {1, 9, 12}},
                    {"k", K::activation, {1, 9, 12}},
                    {"e", K::activation, {1, 9, 12}},
                    {"f", K::activation, {1, 9, 12}}},
                   [](RankContext& ctx, std::span<const CaseArgument> in) {
                     const Tensor a = add(ctx, in[0].tensor, in[1].tensor),
                                  b = add(ctx, in[2].tensor, in[3].tensor);
                     const RopeResult r = rope(ctx, a, b, {.heads = 3, .kv_heads = 3, .in_place = true});
                     return add(ctx, r.q, r.k);
                   }});
  cases.push_back({"rope",
                   "of_a_split",  // gradients are column ranges of one joint buffer
                   {{"qk", K::activation, {2, 5, 30}, 1, 7}},
                   [](RankContext& ctx, std::span<const CaseArgument> in) {
                     const auto parts = split(ctx, in[0].tensor, {12, 12, 6});
                     const RopeResult r = rope(ctx, parts[0], parts[1], {.heads = 2, .kv_heads = 2});
                     return add(ctx, r.q, r.k);
                   }});
  return cases;
}

namespace {

OpCase rope_case(const BenchShape& s, const RopeOptions& o) {
  using K = CaseInput::Kind;
  const Shape q{s["batch"], s["seq"], o.heads * s["dim"]}, k{s["batch"], s["seq"], o.kv_heads * s["dim"]};
  return OpCase{"rope",
                s.str(),
                {{"q", K::activation, q}, {"k", K::activation, k}},
                [o](RankContext& ctx, std::span<const CaseArgument> in) {
                  const RopeResult r = rope(ctx, in[0].tensor, in[1].tensor, o);
                  return CaseOutputs{r.q, r.k};
                }};
}

RopeOptions options_of(const BenchShape& s) { return {.heads = s["heads"], .kv_heads = s["kv_heads"]}; }

}  // namespace

SampledCase sampled_rope(const BenchShape& s, const RopeOptions& options, const Sampling& sampling) {
  SampledCase c{rope_case(s, options), {}};
  const auto work = static_cast<double>((options.heads + options.kv_heads) * s["dim"]);
  for (const int64_t at : sampling.pick(s["batch"] * s["seq"], work + kCallOfNaive)) {
    BenchShape one = s;
    one.set("batch", 1);
    one.set("seq", 1);
    RopeOptions there = options;
    there.offset += at % s["seq"];
    there.length = options.length > 0 ? options.length : options.offset + s["seq"];
    there.in_place = false;
    c.parts.push_back({rope_case(one, there), {{0, Slice{{at}}}, {1, Slice{{at}}}}, {Slice{{at}}}});
  }
  c.taken = static_cast<int64_t>(c.parts.size());
  c.total = s["batch"] * s["seq"];
  return c;
}

OpBench rope_bench() {
  return {
      "rope",
      {},
      {{{"batch", 4}, {"seq", 2048}, {"heads", 16}, {"kv_heads", 16}, {"dim", 64}}},
      {{"batch", 1}, {"seq", 64}},
      [](const BenchShape& s) { return rope_case(s, options_of(s)); },
      {{"forward", Pass::forward}, {"backward", Pass::backward}},
      [](const BenchShape& s, const Sampling& sampling) { return sampled_rope(s, options_of(s), sampling); }};
}

}  // namespace kiln
