// The numbers of a model in memory, by the names that go to disk, as exact fp32: a bf16 parameter is joined
// with its separate 16 low bits (SplitFloat), an fp64 one is rounded. Written to a store of bf16
// weights without low bits, the values are rounded. On any device; in pieces; of a sharded store, this
// rank's. Where a rank has all weights, but low bits of its pieces only (ZeRO), the exact values it has are
// those of its pieces: it reads and writes no others, and the writer gathers the rest.
#pragma once

#include <vector>

#include "model/named_values.h"

namespace kiln {

class ParamValues final : public NamedValues {
 public:
  // The store must be materialized, and must outlive this. Throws Error otherwise.
  ParamValues(RankContext& ctx, ParamStore& store);
  void download(int64_t at, std::span<float> out) override;

 private:
  void upload(int64_t at, std::span<const float> in) override;

  // Places are those of the low bits where there are fewer of them than weights.
  int64_t weight_at(int64_t at) const;

  struct Piece {
    int64_t low, value;  // where it begins in either buffer
  };
  RankContext& ctx_;
  ParamStore& store_;
  std::vector<Piece> pieces_;  // in order; none where both buffers are alike
};

}  // namespace kiln
