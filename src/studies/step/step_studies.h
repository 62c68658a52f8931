// Results over several rows of `bench step`: one precision against another, and by which power a step's time
// grows with the model, the context and the batch, compared with the roofline of its operations and bytes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "perf/model/fit.h"
#include "perf/timing/statistics.h"
#include "report/tables/text_table.h"

namespace kiln {

// Two rows that differ in one word alone.
struct RowPair {
  Json baseline, judged;
  std::string over;         // the word: "dtype", "preset"
  Comparison achieved;      // of their samples
  double own_roofline = 0;  // the same ratio of their own rooflines
  double roofline = 0;      // and of those of the best way known
  double memory = 0;        // peak of the judged over the baseline's; 0 where it is not known
};

// Every pair of timed rows that are alike but for `key`, where one has `baseline` there: fp32 of dtype,
// baseline of preset.
std::vector<RowPair> pairs_over(std::span<const Json> rows, const char* key, const std::string& baseline);

// fp32 against the others, and the baseline's preset against the optimized one.
std::vector<RowPair> step_pairs(std::span<const Json> rows);
TextTable pair_table(std::span<const RowPair> pairs);
Json pairs_json(std::span<const RowPair> pairs);

struct ScalingLaw {
  std::string over;  // params, ctx or batch
  std::string held;  // what the rows have in common: "mode=full dtype=fp32 ctx=512"
  std::vector<double> at;
  PowerLaw measured;
  std::optional<PowerLaw> own_roofline;  // of the rows' own rooflines over the same points
  std::string textbook;                  // "1", or "1 to 2"
  // Of the same points, in ms; 0 where it is not known.
  std::vector<double> measured_ms = {}, own_roofline_ms = {}, roofline_ms = {};
};

// One for each set of at least two timed rows that differ in nothing but the size, the context or the batch.
std::vector<ScalingLaw> step_scaling(std::span<const Json> rows);
TextTable scaling_table(std::span<const ScalingLaw> scaling_fits);
Json scaling_json(std::span<const ScalingLaw> scaling_fits);

}  // namespace kiln
