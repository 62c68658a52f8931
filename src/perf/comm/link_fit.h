// Latency and bandwidth fitted to measured times: t = latency + bytes / bandwidth, the alpha-beta model.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "perf/model/fit.h"

namespace kiln {

struct LinkFit {
  double alpha = 0;  // seconds of a call with next to nothing to move
  double beta = 0;   // seconds a byte
  double r_squared = 0;
  std::size_t points = 0;

  double seconds(double bytes) const { return alpha + beta * bytes; }
  double half_bytes() const { return beta > 0 ? alpha / beta : 0; }  // where both halves are equal
  bool latency_bound(double bytes) const { return alpha > beta * bytes; }
  // Of the wires, by the ring's count: an all-reduce of N ranks takes 2 (N-1) steps of 1/N of the tensor.
  double step_latency(int ranks) const;
  double bus_bandwidth(int ranks) const;  // bytes a second; 0 where the times do not grow with the bytes
  std::string bound_by() const;           // in words, over all sizes
};

// By least squares of the relative errors, so that the small sizes, which determine the latency, count as
// much as the large; neither number is below 0. Nothing where there are fewer than two different sizes.
std::optional<LinkFit> fit_link(std::span<const Point> bytes_and_seconds);

}  // namespace kiln
