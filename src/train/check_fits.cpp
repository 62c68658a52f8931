// The refusal of a run that does not fit: what it needs, what is largest, and what would fit.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "perf/memory/memory_analysis.h"
#include "train/step_choice.h"

namespace kiln {
namespace {

constexpr std::size_t kNamed = 3;

// "weights 1.20 GiB, activation of swiglu 8 x 12.00 MiB": by what they hold at the peak.
std::string largest_tensors(const MemoryRequest& request, const RankOptions& rank) {
  const MemoryRecord record = predict_allocations(request, rank);
  std::vector<LargeAllocation> all = largest_allocations(record, analyse(record), 100);
  const auto held = [](const LargeAllocation& l) {
    return l.bytes * static_cast<std::size_t>(std::max<int64_t>(0, l.live_at_peak));
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const LargeAllocation& a, const LargeAllocation& b) { return held(a) > held(b); });
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, all.size()) && held(all[i]) > 0; ++i) {
    const LargeAllocation& l = all[i];
    text += fmt::format("{}{}{} {}{}", text.empty() ? "" : ", ", name_of(l.origin.tag),
                        *l.origin.op == '\0' ? "" : fmt::format(" of {}", l.origin.op),
                        l.live_at_peak > 1 ? fmt::format("{} x ", l.live_at_peak) : "", human({l.bytes}));
  }
  return text;
}

}  // namespace

void check_fits(const MemoryRequest& request, const RankOptions& rank, const MemoryStats& predicted,
                std::size_t free_memory, const std::string& folder) {
  if (predicted.peak_total <= free_memory) return;
  const int64_t batch = request.step.batch;
  const int64_t fits = largest_batch(batch, free_memory, [&](int64_t smaller) {
    MemoryRequest r = request;
    r.step.batch = smaller;
    return predict_memory(r, rank).peak_total;
  });
  const int64_t ranks = rank.world / request.layout.tensor_ranks;  // that share the batch out
  const StepClock clock =
      clock_of(folder, rank.device, rank.threads, policy_of(request.layout.precision).compute);
  const std::vector<WayOut> ways = ways_out(request, rank, free_memory, clock);
  const std::string others = ways.empty() ? "--precision bf16, --recompute block, a smaller --ctx or --size"
                                          : fmt::format("what fits: {}", ways_text(ways, clock));
  throw Error(cat("this run needs ", human({predicted.peak_total}), " of memory",
                  rank.world > 1 ? " on each rank" : "", "; ", human({free_memory}), " are free on ",
                  rank.device.str(), rank.world > 1 ? " for each" : "", "; peaks: ", needed_by_tag(predicted),
                  "; largest tensors: ", largest_tensors(request, rank)),
              fits > 0       ? cat("the largest --batch that fits is ", fits * ranks, " (", batch * ranks,
                                   " was requested; --grad-accum makes up for it); or ", others)
              : ways.empty() ? cat("no --batch fits: take ", others)
                             : cat("no --batch fits as it is; ", others));
}

}  // namespace kiln
