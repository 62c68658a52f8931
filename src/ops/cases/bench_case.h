// What `kiln bench op` runs: for each op, sizes by name (rows=8192,cols=4096) and how a case is made of them.
// To add an op: a function <op>_bench() next to its cases, and its line in all_op_benches().
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cost.h"
#include "ops/cases/op_case.h"
#include "ops/cases/sampled_case.h"

namespace kiln {

// Sizes by name, in the order they are shown.
class BenchShape {
 public:
  BenchShape(std::initializer_list<std::pair<std::string, int64_t>> sizes) : sizes_(sizes) {}

  int64_t operator[](std::string_view key) const;  // throws for a key that is not there
  void set(std::string_view key, int64_t value);
  const std::vector<std::pair<std::string, int64_t>>& all() const { return sizes_; }
  std::string str() const;  // "rows=8192,cols=4096"
  friend bool operator==(const BenchShape&, const BenchShape&) = default;

 private:
  std::vector<std::pair<std::string, int64_t>> sizes_;
};

// A part of the op that is timed by itself.
struct BenchForm {
  const char* name;  // forward, backward; linear: forward, dgrad, wgrad
  Pass pass;
  std::vector<std::string> wants = {};  // inputs that get a gradient; empty: all
  double share = 1;                     // of the cost the op states for the pass
};

struct OpBench {
  std::string op;
  std::vector<std::string> aliases;
  std::vector<BenchShape> shapes;  // run when none is requested; the first gives keys left out their values
  // Each size at most this is what naive does in moments: for tests. Before a timing the timed size is
  // checked.
  BenchShape check_at_most;
  std::function<OpCase(const BenchShape&)> make;  // throws Error(usage) for sizes that do not fit each other
  std::vector<BenchForm> forms = {{"forward", Pass::forward}, {"backward", Pass::backward}};

  // The case as it is checked at any size; null: by its `rows`, which do not see each other.
  std::function<SampledCase(const BenchShape&, const Sampling&)> sample = nullptr;

  SampledCase sampled(const BenchShape& shape, const Sampling& sampling) const;
  // The requested shape, no larger than check_at_most.
  BenchShape check_shape(BenchShape shape) const;
};

OpBench adamw_bench();
OpBench add_bench();
OpBench add_rms_norm_bench();
OpBench attention_bench();
OpBench batched_matmul_bench();
OpBench cross_entropy_bench();
std::vector<OpBench> elementwise_benches();
OpBench embedding_bench();
OpBench layer_norm_bench();
OpBench linear_bench();
OpBench linear_cross_entropy_bench();
OpBench masked_softmax_bench();
OpBench rms_norm_bench();
OpBench rope_bench();
OpBench sgd_bench();
OpBench softmax_bench();
OpBench square_sum_bench();
OpBench swiglu_bench();
OpBench weighted_sum_bench();

std::vector<OpBench> all_op_benches();

// By name or alias; throws Error(usage) with the nearest name.
OpBench find_op_bench(std::string_view asked);

// "rows=8192,cols=4096", keys left out as in the op's first shape. Throws Error(usage) for an unknown key,
// with the nearest, and for a value that is not a whole number from 1 (0 where that is the default) to
// 2^31.
BenchShape parse_bench_shape(const OpBench& bench, std::string_view text);

}  // namespace kiln
