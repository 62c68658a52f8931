#include "studies/attention/check.h"

#include "ops/attention/attention.h"
#include "studies/gate/sampling.h"

namespace kiln {

AttentionReferences::AttentionReferences(const Device& device, int threads, uint64_t seed)
    : device_(device), threads_(threads), seed_(seed) {
  const std::vector<OpListing> ops = list_ops();
  baseline_ = baseline_of(find_op(ops, AttentionOp::kName));
}

const SampledReference& AttentionReferences::of(const AttentionCell& cell) {
  if (made_ && last_ == cell.str()) return *made_;
  SampledCase c = find_op_bench(AttentionOp::kName).sampled(cell.shape(), gate_sampling(device_, seed_));
  if (cell.packed) c = pack_inputs(std::move(c), 0, 3);
  made_.emplace(std::move(c), cell.dtype, seed_, threads_);
  last_ = cell.str();
  return *made_;
}

}  // namespace kiln
