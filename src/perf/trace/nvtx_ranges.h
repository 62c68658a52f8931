// The ranges of a step under the names of the trace (phase, layer, part of a layer, op), for Nsight and other
// tools that read NVTX. Without such a tool a range costs nothing worth measuring; a build without CUDA has
// none.
#pragma once

#include <string>
#include <vector>

#include "autograd/op_observer.h"

namespace kiln {

// One range by name, while it lives. `kiln_profile` encloses what is traced, so that
// `nsys profile -c nvtx -p kiln_profile@kiln` leaves warm-ups out.
class NvtxRange {
 public:
  explicit NvtxRange(const char* name);
  ~NvtxRange();  // NOLINT(performance-trivially-destructible): not where there is NVTX
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

// The ranges of one step, inside one called `step`.
class NvtxRanges final : public OpObserver {
 public:
  explicit NvtxRanges(RankContext& ctx);  // watches while it lives
  ~NvtxRanges() override;
  NvtxRanges(const NvtxRanges&) = delete;
  NvtxRanges& operator=(const NvtxRanges&) = delete;

  void on_op_begin(RankContext& ctx, const OpEvent& event) override;
  void on_op_end(RankContext& ctx, const OpEvent& event) override;

 private:
  RankContext& ctx_;
  NvtxRange step_{"step"};
  std::vector<std::string> open_;  // outermost first; a range stays open until an op begins outside of it
  int depth_ = 0;
};

}  // namespace kiln
