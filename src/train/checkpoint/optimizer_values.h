// AdamW's moments by the names that go to disk, as exact fp32, in pieces: what model/param_values.h is for
// weights. The optimizer's spans may be all of the store's ranges or this rank's parts of them.
#pragma once

#include "model/named_values.h"
#include "optim/adamw_optimizer.h"

namespace kiln {

enum class Moment { first, second };  // m and v

class MomentValues final : public NamedValues {
 public:
  // The store whose spans the optimizer has, or parts of them: told by name and offset. Both must outlive
  // this.
  MomentValues(RankContext& ctx, ParamStore& store, const AdamWOptimizer& optimizer, Moment which);
  void download(int64_t at, std::span<float> out) override;

 private:
  void upload(int64_t at, std::span<const float> in) override;

  RankContext& ctx_;
  Tensor flat_;
};

}  // namespace kiln
