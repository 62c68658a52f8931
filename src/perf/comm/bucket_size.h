// How large a bucket of gradients should be. With s bytes of gradients in n buckets, a link that sums w bytes
// a second and takes o seconds more for every call, what a step takes besides its compute is
//
//   s / (n w)   the last bucket, which is sent when no compute is left to overlap
//   + n o       the calls
//
// which is least for n = sqrt(s / (w o)), buckets of sqrt(s w o) bytes.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/json.h"
#include "dist/comm/link_model.h"
#include "perf/comm/link_fit.h"

namespace kiln {

struct SumCost {
  double w = 0;  // bytes a second
  double o = 0;  // seconds a call
  // Over all of a step's calls: is it their number, or their bytes?
  bool latency_bound(double bytes, double calls) const { return calls * o > bytes / w; }
};
SumCost sum_cost(const LinkModel& link, int ranks);  // by the ring
SumCost sum_cost(const LinkFit& fit);

double bucket_overhead(double s, double n, const SumCost& cost);  // seconds

struct BestBucket {
  double bytes = 0;     // all of s where a single one is best
  double n = 1;         // s / bytes
  double overhead = 0;  // seconds
};
BestBucket best_bucket(double s, const SumCost& cost);

// Fitted from stored rows of `bench allreduce` between so many ranks on the same transport and device; none
// where there are fewer than two sizes.
std::optional<LinkFit> stored_link(std::span<const Json> rows, std::string_view transport,
                                   std::string_view device, int ranks);

}  // namespace kiln
