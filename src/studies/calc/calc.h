// The work of `kiln calc`: theory of communication and sharding, against what was measured.
// The measured figures are stored rows of the benches; none is measured here.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/units.h"
#include "dist/comm/link_model.h"
#include "perf/comm/bucket_size.h"
#include "perf/comm/zero_theory.h"
#include "report/tables/study_page.h"
#include "studies/ranks/rank_steps.h"

namespace kiln {

using StoredRows = std::span<const Json>;

// Whose rows are compared with. An empty device: that of the newest row which fits otherwise.
struct CalcPlace {
  std::string folder;  // where the rows are, for messages
  std::string transport = "threads", device;
};

// --- ring: what each way round a ring of N ranks costs

struct RingRequest {
  CalcPlace place;
  std::vector<Bytes> sizes = {{1'000'000}, {10'000'000}, {100'000'000}, {1'000'000'000}};
  std::vector<int> ranks = {2, 4, 6};
  std::optional<LinkModel> link;  // else fitted from rows of `bench allreduce --algorithm ring`
};

struct RingRow {
  std::string collective;  // all_gather, reduce_scatter, all_reduce, alternate
  std::string formula;     // of S bytes, N ranks, latency L, bandwidth W
  int ranks = 2;
  double bytes = 0;                // S
  double sent = 0;                 // by each rank
  double predicted = 0;            // seconds
  double floor = 0;                // seconds: as few bytes as any way could send, and no latency
  std::optional<double> achieved;  // seconds: the stored row of these bytes
};

struct RingReport {
  RingRequest request;
  std::vector<std::pair<int, LinkModel>> links;  // by ranks
  std::vector<RingRow> rows;
};

// Throws Error(unavailable) where neither --link nor rows say what the link is.
RingReport calc_ring(const RingRequest& request, StoredRows stored);
StudyPage ring_page(const RingReport& report, bool wide = false);

// --- bucket: how large a bucket of gradients should be

struct BucketRequest {
  CalcPlace place;
  double bytes = 0;  // s, of all gradients
  int ranks = 2;
  std::optional<SumCost> cost;  // w and o; else of the link, else fitted from rows of `bench allreduce`
  std::optional<LinkModel> link;
  std::vector<double> bucket_mb = {1, 10, 100, 1000};  // to be compared with the best
};

struct BucketRow {
  double bucket = 0;               // bytes; those that would hold more than there is are one row
  bool best = false;               // the predicted one
  double n = 1;                    // how many
  double predicted = 0;            // seconds besides the compute
  std::optional<double> achieved;  // of the stored row of `bench ddp`: the step less compute alone
};

struct BucketReport {
  BucketRequest request;
  SumCost cost;
  std::string cost_from;
  BestBucket best;
  std::vector<BucketRow> rows;
  const BucketRow* fastest() const;  // of those that were measured
};

BucketReport calc_bucket(const BucketRequest& request, StoredRows stored);
StudyPage bucket_page(const BucketReport& report, bool wide = false);

// --- fsdp-savings: what sharding everything saves over sharding nothing, and over ZeRO-1

struct SavingsRequest {
  CalcPlace place;
  RanksStudy study;  // its batch is that of each rank; where it runs comes from `place`
  std::vector<int> ranks = {2, 4, 8};
};

struct SavingsRow {
  std::string stage;
  int ranks = 1;
  ZeroTheory theory;
  double predicted_state = 0, predicted_peak = 0;       // bytes, by meta
  std::optional<double> achieved_state, achieved_peak;  // of the stored row of `bench zero`
};

struct SavingsReport {
  SavingsRequest request;
  int64_t parameters = 0;
  std::vector<SavingsRow> rows;
};

SavingsReport calc_savings(const SavingsRequest& request, StoredRows stored);
StudyPage savings_page(const SavingsReport& report, bool wide = false);

}  // namespace kiln
