#include "ops/attention/attention.h"

#include <algorithm>

#include "ops/cases/bench_case.h"

namespace kiln {

std::vector<OpCase> attention_cases() {
  using K = CaseInput::Kind;
  std::vector<OpCase> cases;
  struct Dims {
    int64_t B, Tq, Tk, H, Hkv, D;
  };
  auto one = [&](std::string name, Dims d, bool causal, int64_t padding = 0) {
    cases.push_back({"attention",
                     std::move(name),
                     {{"q", K::activation, {d.B, d.Tq, d.H * d.D}, 1, padding},
                      {"k", K::activation, {d.B, d.Tk, d.Hkv * d.D}, 1, padding},
                      {"v", K::activation, {d.B, d.Tk, d.Hkv * d.D}, 1, padding}},
                     [d, causal](RankContext& ctx, std::span<const CaseArgument> in) {
                       AttentionOptions o;
                       o.heads = d.H;
                       o.kv_heads = d.Hkv;
                       o.causal = causal;
                       return attention(ctx, in[0].tensor, in[1].tensor, in[2].tensor, o);
                     }});
  };
  one("one_token", {1, 1, 1, 1, 1, 1}, true);
  one("causal_7x7_d16", {2, 7, 7, 2, 2, 16}, true);
  one("full_5x9_d3", {1, 5, 9, 2, 2, 3}, false);
  one("grouped_heads_13_d8", {1, 13, 13, 6, 2, 8}, true);
  one("one_kv_head", {2, 9, 9, 4, 1, 5}, true);
  one("fewer_queries_than_keys", {1, 3, 11, 2, 1, 8}, true);
  one("more_queries_than_keys", {2, 11, 7, 4, 2, 8}, true);
  one("packed_rows", {2, 17, 17, 4, 2, 8}, true, 64);
  one("causal_65_d80", {1, 65, 65, 1, 1, 80}, true);
  // Several tiles of flash, whole and broken ones.
  one("causal_127_d64", {1, 127, 127, 1, 1, 64}, true);
  one("grouped_130_d33", {1, 130, 130, 2, 1, 33}, true, 3);
  one("full_70x129_d20", {1, 70, 129, 1, 1, 20}, false);
  one("causal_67x200_d24", {1, 67, 200, 1, 1, 24}, true);  // a diagonal that crosses two key tiles
  one("causal_150x70_d17", {1, 150, 70, 1, 1, 17}, true);  // a whole tile of queries that see nothing
  one("causal_3x128_d128", {1, 3, 128, 4, 2, 128}, true);
  one("one_query_131_d80", {2, 1, 131, 4, 2, 80}, true, 5);
  one("8x40_d19", {1, 8, 40, 2, 1, 19}, true);
  one("full_6x3_d64", {1, 6, 3, 1, 1, 64}, false);
  // So many heads that flash on CUDA takes blocks of 128 queries.
  one("many_heads_2x66_d16", {33, 2, 66, 16, 4, 16}, true);
  one("many_heads_1x3_d72", {66, 1, 3, 8, 8, 72}, true);
  // The other widths heads come in, and some between.
  one("packed_37_d32", {1, 37, 37, 2, 1, 32}, true, 96);
  one("causal_67_d96", {1, 67, 67, 1, 1, 96}, true);
  one("one_query_67_d136", {1, 1, 67, 2, 1, 136}, true, 5);
  one("full_5x67_d160", {1, 5, 67, 2, 1, 160}, false);
  one("causal_7x66_d192", {1, 7, 66, 1, 1, 192}, true);
  one("causal_9x66_d256", {1, 9, 66, 1, 1, 256}, true);
  one("no_keys", {1, 5, 0, 2, 1, 8}, true);
  return cases;
}

namespace {

// One query of one sequence, for the heads that share a key/value head: it sees the keys up to its own, so
// their gradients are sums over the queries that are taken.
SampledPart one_query(const OpBench& bench, const BenchShape& s, int64_t b, int64_t t, int64_t kv_head) {
  const int64_t H = s["heads"], Hkv = s["kv_heads"] == 0 ? H : s["kv_heads"], D = s["dim"], G = H / Hkv;
  const int64_t Tq = s["seq"], Tk = s["kv_seq"] == 0 ? Tq : s["kv_seq"];
  const bool full = s["full"] != 0;
  const int64_t visible = full ? Tk : std::clamp<int64_t>(t + 1 + Tk - Tq, 1, Tk);
  const BenchShape one{{"batch", 1},    {"seq", 1}, {"kv_seq", visible},   {"heads", G},
                       {"kv_heads", 1}, {"dim", D}, {"full", full ? 1 : 0}};
  Slice query{{b * Tq + t}}, keys;
  query.col = kv_head * G * D;
  query.cols = G * D;
  for (int64_t j = 0; j < visible; ++j) keys.rows.push_back(b * Tk + j);
  keys.col = kv_head * D;
  keys.cols = D;
  return {bench.make(one), {{0, query}, {1, keys}, {2, keys}}, {query}};
}

SampledCase sample_queries(const BenchShape& s, const Sampling& sampling) {
  const OpBench bench = attention_bench();
  const int64_t B = s["batch"], Tq = s["seq"], H = s["heads"], Hkv = s["kv_heads"] == 0 ? H : s["kv_heads"];
  const int64_t Tk = s["kv_seq"] == 0 ? Tq : s["kv_seq"];
  const int64_t hidden = s["full"] != 0 ? 0 : std::max<int64_t>(0, Tq - Tk);  // queries that see no key
  SampledCase c{bench.make(s), {}};
  const double work = static_cast<double>(Tk * s["dim"] * (H / Hkv)) * 2 + kCallOfNaive;
  // By token, then sequence, then head: the first query of the first head and the last of the last are among.
  for (const int64_t at : sampling.pick(B * Hkv * (Tq - hidden), work)) {
    const int64_t t = hidden + at % (Tq - hidden), rest = at / (Tq - hidden);
    c.parts.push_back(one_query(bench, s, rest % B, t, rest / B));
  }
  c.taken = static_cast<int64_t>(c.parts.size());
  c.total = B * Hkv * (Tq - hidden);
  return c;
}

}  // namespace

OpBench attention_bench() {
  using K = CaseInput::Kind;
  return {
      "attention",
      {},
      // 0: kv_seq as seq, kv_heads as heads, not full but causal
      {{{"batch", 1}, {"seq", 512}, {"kv_seq", 0}, {"heads", 12}, {"kv_heads", 0}, {"dim", 64}, {"full", 0}},
       {{"batch", 1},
        {"seq", 1024},
        {"kv_seq", 0},
        {"heads", 12},
        {"kv_heads", 0},
        {"dim", 64},
        {"full", 0}}},
      {{"batch", 1}, {"seq", 130}, {"kv_seq", 130}},
      [](const BenchShape& s) {
        AttentionOptions o;
        o.heads = s["heads"];
        o.kv_heads = s["kv_heads"] == 0 ? s["heads"] : s["kv_heads"];
        o.causal = s["full"] == 0;
        if (o.heads % o.kv_heads != 0) {
          throw Error(cat("[attention] ", o.heads, " heads cannot share ", o.kv_heads, " key/value heads"),
                      "heads must be a multiple of kv_heads", ErrorKind::usage);
        }
        const int64_t Tk = s["kv_seq"] == 0 ? s["seq"] : s["kv_seq"];
        const Shape q{s["batch"], s["seq"], o.heads * s["dim"]}, kv{s["batch"], Tk, o.kv_heads * s["dim"]};
        return OpCase{"attention",
                      s.str(),
                      {{"q", K::activation, q}, {"k", K::activation, kv}, {"v", K::activation, kv}},
                      [o](RankContext& ctx, std::span<const CaseArgument> in) {
                        return attention(ctx, in[0].tensor, in[1].tensor, in[2].tensor, o);
                      }};
      },
      {{"forward", Pass::forward}, {"backward", Pass::backward}},
      sample_queries};
}

}  // namespace kiln
