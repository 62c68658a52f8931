// What rows of `bench op` say together: the ladder of an op's variants, each rung beside the one before it,
// and from which size on a fused variant pays.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "perf/model/fit.h"
#include "perf/timing/statistics.h"
#include "report/tables/text_table.h"

namespace kiln {

// One variant on one shape, all its passes together.
struct Rung {
  std::string variant;
  std::vector<double> pass_ms;  // as Ladder::passes has them
  double ms = 0;                // their sum
  double bytes = 0, flops = 0;  // its own
  double predicted_ms = 0;
  double floor_ms = 0;                   // the least that a rung of this ladder is predicted to take
  double over_last = 0, over_first = 0;  // how many times faster than the rung below, and than the lowest
  Comparison::Verdict verdict = Comparison::Verdict::too_few;  // against the rung below, over its first pass
  bool won_every_pass = false;                                 // against the rung below
};

struct Ladder {
  std::string op, shape, dtype;
  std::vector<std::string> passes;
  std::vector<Rung> rungs;  // the slowest first
};

// One for each shape and dtype with at least two variants that have all passes.
std::vector<Ladder> op_ladders(std::span<const nlohmann::json> rows);
TextTable ladder_table(const Ladder& ladder);
nlohmann::ordered_json ladders_json(std::span<const Ladder> ladders);

// A variant against the faster of naive and composed, over one size of the shape, the others held.
struct OpCrossover {
  std::string op, variant, pass, dtype, over, held;
  std::vector<Duel> duels;
  Crossover found;
  std::vector<double> predicted = {};  // of each duel the ratio that is predicted; 0: not known
};

// One for each size that takes at least two values.
std::vector<OpCrossover> op_crossovers(std::span<const nlohmann::json> rows);
TextTable crossover_table(std::span<const OpCrossover> all);
nlohmann::ordered_json crossovers_json(std::span<const OpCrossover> all);

}  // namespace kiln
