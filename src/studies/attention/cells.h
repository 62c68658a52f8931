// The shapes of attention that the studies time: one cell is one shape in one dtype, and what it must cost.
#pragma once

#include <string>
#include <vector>

#include "base/cost.h"
#include "ops/attention/attention.h"
#include "ops/cases/bench_case.h"

namespace kiln {

enum class AttentionPass { forward, backward, both };
inline constexpr int kAttentionPasses = 3;
std::string_view name_of(AttentionPass pass);

struct AttentionCell {
  int64_t batch = 1, heads = 1, seq = 1, d = 1;
  DType dtype = DType::bf16;
  bool causal = true;
  bool packed = false;  // q, k and v are columns of one [B, T, 3 H D], and so are their gradients

  double pairs() const;  // of a query and a key it sees, over all heads
  // The same for every variant, so that their rates compare: two matmuls of the seen pairs forward, five
  // backward (the scores are made again). The bytes are those of the tensors that go in and come out.
  Cost least(AttentionPass pass) const;
  std::string str() const;  // "4 x 12 heads x 512 x 64 causal packed bf16"
  // The op's case for this cell; `packed` has one input in place of three.
  OpBench bench() const;
  BenchShape shape() const;
  AttentionProblem problem() const;
  friend bool operator==(const AttentionCell&, const AttentionCell&) = default;
};

// Every combination, dtype by dtype.
struct AttentionGrid {
  int64_t batch = 1, heads = 1;
  std::vector<int64_t> seqs, ds;
  std::vector<DType> dtypes;
  bool causal = true;
};
std::vector<AttentionCell> grid_cells(const AttentionGrid& grid);

// 16,384 tokens in a batch, 2048 wide (2000 for heads of 80), causal and full.
std::vector<AttentionCell> tokens16k_cells(const std::vector<DType>& dtypes);
// What one layer of a training step calls, from packed q, k and v.
std::vector<AttentionCell> step_cells(const std::vector<DType>& dtypes);

}  // namespace kiln
