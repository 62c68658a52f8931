#include "studies/attention/cells.h"

#include <cmath>

#include "autograd/tape.h"

namespace kiln {

std::string_view name_of(AttentionPass pass) {
  return pass == AttentionPass::forward ? "forward" : pass == AttentionPass::backward ? "backward" : "both";
}

double AttentionCell::pairs() const {
  const auto t = static_cast<double>(seq);
  return static_cast<double>(batch * heads) * (causal ? t * (t + 1) / 2 : t * t);
}

Cost AttentionCell::least(AttentionPass pass) const {
  if (pass == AttentionPass::both) return least(AttentionPass::forward) + least(AttentionPass::backward);
  const double product = 2 * pairs() * static_cast<double>(d);
  const auto rows = static_cast<double>(batch * heads * seq);
  const double tensor = rows * static_cast<double>(d) * static_cast<double>(size_of(dtype)),
               lse = rows * static_cast<double>(size_of(stat_dtype(dtype)));
  // q, k, v in, o out; then q, k, v, o, do in, dq, dk, dv out
  return pass == AttentionPass::forward ? Cost{2 * product, 4 * tensor + lse}
                                        : Cost{5 * product, 8 * tensor + lse};
}

std::string AttentionCell::str() const {
  return cat(batch, " x ", heads, heads == 1 ? " head x " : " heads x ", seq, " x ", d,
             causal ? " causal" : " full", packed ? " packed " : " ", kiln::name_of(dtype));
}

BenchShape AttentionCell::shape() const {
  return {{"batch", batch}, {"seq", seq}, {"kv_seq", 0},           {"heads", heads},
          {"kv_heads", 0},  {"dim", d},   {"full", causal ? 0 : 1}};
}

AttentionProblem AttentionCell::problem() const {
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d)));
  return {batch, seq, seq, heads, heads, d, dtype, scale, causal};
}

OpBench AttentionCell::bench() const {
  OpBench bench = find_op_bench("attention");
  if (!packed) return bench;
  bench.make = [](const BenchShape& s) {
    const AttentionOptions options{
        .heads = s["heads"], .kv_heads = s["heads"], .causal = s["full"] == 0, .scale = 0, .variant = {}};
    const int64_t width = s["heads"] * s["dim"];
    return OpCase{"attention",
                  s.str(),
                  {{"qkv", CaseInput::Kind::activation, {s["batch"], s["seq"], 3 * width}}},
                  [options, width](RankContext& ctx, std::span<const CaseArgument> in) {
                    const auto parts = split(ctx, in[0].tensor, {width, width, width});
                    return attention(ctx, parts[0], parts[1], parts[2], options);
                  }};
  };
  return bench;
}

std::vector<AttentionCell> grid_cells(const AttentionGrid& grid) {
  std::vector<AttentionCell> cells;
  for (DType dtype : grid.dtypes) {
    for (int64_t d : grid.ds) {
      for (int64_t seq : grid.seqs)
        cells.push_back({grid.batch, grid.heads, seq, d, dtype, grid.causal, false});
    }
  }
  return cells;
}

std::vector<AttentionCell> tokens16k_cells(const std::vector<DType>& dtypes) {
  constexpr int64_t kTokens = 16384, kWidth = 2048;
  std::vector<AttentionCell> cells;
  for (DType dtype : dtypes) {
    for (int64_t d : {64, 80, 128}) {
      for (bool causal : {true, false}) {
        for (int64_t seq : {1024, 4096, 16384})
          cells.push_back({kTokens / seq, kWidth / d, seq, d, dtype, causal, false});
      }
    }
  }
  return cells;
}

std::vector<AttentionCell> step_cells(const std::vector<DType>& dtypes) {
  std::vector<AttentionCell> cells;
  for (DType dtype : dtypes) {
    cells.push_back({4, 12, 512, 64, dtype, true, true});    // small
    cells.push_back({4, 25, 512, 64, dtype, true, true});    // xl25
    cells.push_back({4, 32, 512, 80, dtype, true, true});    // 2.7b
    cells.push_back({32, 12, 1024, 64, dtype, true, true});  // small, large batch
  }
  return cells;
}

}  // namespace kiln
