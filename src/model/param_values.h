// The numbers of a model in memory, by the names that go to disk, as exact fp32: a bf16 parameter is joined
// with the 16 low bits that stand beside it (SplitFloat), an fp64 one is rounded. Written to a store of bf16
// weights without low bits, the values are rounded. On any device; in pieces; of a sharded store, this
// rank's.
#pragma once

#include "model/named_values.h"

namespace kiln {

class ParamValues final : public NamedValues {
 public:
  // The store must be materialized, and must outlive this. Throws Error otherwise.
  ParamValues(RankContext& ctx, ParamStore& store);
  void download(int64_t at, std::span<float> out) override;

 private:
  void upload(int64_t at, std::span<const float> in) override;

  RankContext& ctx_;
  ParamStore& store_;
};

}  // namespace kiln
