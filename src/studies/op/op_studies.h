// Results over several rows of `bench op`: the ladder of an op's variants, each step against the one before,
// and from which size on a fused variant pays.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "perf/model/fit.h"
#include "perf/timing/statistics.h"
#include "report/tables/text_table.h"

namespace kiln {

// One variant on one shape, the sum of its passes.
struct LadderStep {
  std::string variant;
  std::vector<double> pass_ms;  // as Ladder::passes has them
  double ms = 0;                // their sum
  double bytes = 0, flops = 0;  // its own
  double own_roofline_ms = 0;
  std::string below_roofline;            // why a pass of it was faster than its roofline; empty: none was
  double roofline_ms = 0;                // the least of this ladder's own rooflines
  double over_last = 0, over_first = 0;  // how many times faster than the step below, and than the lowest
  Comparison::Significance significance =
      Comparison::Significance::too_few;  // against the step below, over its first pass
  bool won_every_pass = false;            // against the step below
};

struct Ladder {
  std::string op, shape, dtype;
  std::vector<std::string> passes;
  std::vector<LadderStep> steps;  // the slowest first
};

// One for each shape and dtype with at least two variants that have all passes.
std::vector<Ladder> op_ladders(std::span<const Json> rows);
TextTable ladder_table(const Ladder& ladder);
Json ladders_json(std::span<const Ladder> ladders);

// A variant against the faster of naive and composed, over one size of the shape, the others held.
struct OpCrossover {
  std::string op, variant, pass, dtype, over, held;
  std::vector<Duel> duels;
  Crossover found;
  std::vector<double> rooflines = {};  // of each duel the ratio of their own rooflines; 0: not known
};

// One for each size that takes at least two values.
std::vector<OpCrossover> op_crossovers(std::span<const Json> rows);
TextTable crossover_table(std::span<const OpCrossover> all);
Json crossovers_json(std::span<const OpCrossover> all);

}  // namespace kiln
