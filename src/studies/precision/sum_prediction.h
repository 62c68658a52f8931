// What rounding does to a running sum, predicted from the numbers that are added and the format, without
// rounding anything.
#pragma once

#include <span>
#include <vector>

#include "studies/precision/running_sum.h"

namespace kiln {

struct SumPrediction {
  double bias = 0;      // of the sum, with its sign: what additions that all round the same way make
  double variance = 0;  // and what those make that round either way
  double worst = 0;     // half a spacing at every addition, all in one direction: the n u bound
};

// The spacing at x where the format does not hold it, 0 where it does.
double spacing_if_rounded(double x, const FloatFormat& format);

// One running sum over `terms`, in their order. A sum that is kept in a format is a multiple of its spacing
// there, so an addition rounds the term alone: to nothing where it is less than half a spacing. Mean and
// variance of that over all terms make bias and variance. Where the sum enters a larger binade its own last
// digit goes too.
SumPrediction predict_sum(std::span<const double> terms, const FloatFormat& format, SumMethod method);

// Sums of pairs, of pairs of pairs and so on, each rounded once.
SumPrediction predict_tree(std::span<const double> terms, const FloatFormat& format);

// A moving average, s += rate (x - s) from s = 0, of `steps` x like those of `sample`: how far off it is
// after each step. The increment takes the term's place.
std::vector<SumPrediction> predict_average(std::span<const double> sample, double rate, int steps,
                                           const FloatFormat& format, SumMethod method);

}  // namespace kiln
