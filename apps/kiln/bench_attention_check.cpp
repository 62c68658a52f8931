#include "kiln/bench_attention_check.h"

#include <algorithm>

#include "ops/attention/attention.h"
#include "ops/attention/row_choice.h"

namespace kiln::cli {

AttentionReferences::AttentionReferences(const Device& device, int threads, uint64_t seed)
    : device_(device), threads_(threads), seed_(seed) {
  const std::vector<OpListing> ops = list_ops();
  baseline_ = baseline_of(find_op(ops, AttentionOp::kName));
}

BenchOpRequest AttentionReferences::check_for(const AttentionCell& cell) const {
  BenchOpRequest r{.bench = cell.bench(),
                   .shapes = {},
                   .dtypes = {cell.dtype},
                   .variants = {},
                   .forms = {},
                   .device = device_};
  r.threads = threads_;
  r.seed = seed_;
  return r;
}

namespace {

bool same_kernels(const AttentionProblem& a, const AttentionProblem& b) {
  return parts_beat_hopper(a) == parts_beat_hopper(b) &&
         flash_backward_beats_hopper(a) == flash_backward_beats_hopper(b);
}

int64_t check_length(const OpBench& bench, const AttentionCell& cell, const std::string& variant) {
  AttentionCell checked = cell;
  checked.seq = bench.check_shape(cell.shape())["seq"];
  if (variant != "flash_few_rows") return checked.seq;
  while (checked.seq < cell.seq && !same_kernels(checked.problem(), cell.problem()))
    checked.seq = std::min(cell.seq, 2 * checked.seq);
  return checked.seq;
}

}  // namespace

const Reference& AttentionReferences::of(const AttentionCell& cell, const std::string& variant) {
  BenchOpRequest check = check_for(cell);
  check.bench.check_at_most.set("seq", check_length(check.bench, cell, variant));
  const std::string key = cat(check.bench.check_shape(cell.shape()).str(), " ", kiln::name_of(cell.dtype),
                              cell.packed ? " packed" : "");
  const auto found = made_.find(key);
  if (found != made_.end()) return found->second;
  return made_.emplace(key, make_reference(check, cell.shape(), cell.dtype, baseline_)).first->second;
}

double naive_seconds(const Reference& reference, const AttentionCell& cell) {
  AttentionCell checked = cell;
  checked.batch = reference.shape["batch"];
  checked.heads = reference.shape["heads"];
  checked.seq = reference.shape["seq"];
  return reference.seconds * cell.pairs() / checked.pairs();
}

}  // namespace kiln::cli
