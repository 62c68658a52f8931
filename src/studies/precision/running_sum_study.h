// The same number added many times, in each pair of dtypes that occurs in training: what comes out, what
// limits it, and what a walk over the powers of two predicts without adding anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "studies/precision/running_sum.h"

namespace kiln {

struct RunningSumRequest {
  int64_t count = 1000;
  double value = 0.01;  // > 0
  int runs = 32;        // of each row that draws
  uint64_t seed = 0;
};

// What keeps the sum from being count x value.
enum class SumLimit {
  value,    // the additions were exact: the dtype's own value is all there is
  spacing,  // each addition rounds to the accumulator's spacing
  stalls,   // the value is less than half the spacing: from some sum on nothing is added
  chance,   // stochastic rounding scatters
  range,    // over the largest number
};

// While the sum is in [from, 2 from) all additions add the same.
struct Binade {
  double from;
  double spacing;
  double adds;  // in place of the increment
  int64_t count;
};

struct PlainSumPrediction {
  double sum;
  std::optional<double> stalls_at;
  std::vector<Binade> binades;
};

// Where plain additions of `increment` lead in a format, binade by binade. `increment` must be a number of
// the accumulator's dtype.
PlainSumPrediction predict_plain_sum(DType accumulator, double increment, int64_t count);

struct RunningSumRow {
  DType added, accumulator;
  SumMethod method;
  double increment = 0;  // the value as `added` holds it
  double sum = 0;        // of stochastic rows the mean of the runs
  double error = 0;      // against count x value
  double floor = 0;      // |error| that rounding the value alone makes
  double spacing = 0;    // the accumulator's, at the sum
  double predicted = 0;  // the sum
  double bound = 0;      // how far the sum may lie from `predicted`; 0: not at all
  double spread = 0;     // standard deviation of a run; stochastic rows only
  double predicted_spread = 0;
  int runs = 1;
  SumLimit limit = SumLimit::value;
  std::optional<double> stalls_at = {};
  std::vector<Binade> binades = {};  // of plain rows
};

struct RunningSumReport {
  RunningSumRequest request;
  double exact = 0;  // count x value
  std::vector<RunningSumRow> rows;
};

RunningSumReport running_sum_study(const RunningSumRequest& request);

std::string_view name_of(SumLimit l);

}  // namespace kiln
