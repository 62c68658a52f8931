// The numbers of a model in memory, by the names that go to disk, as exact fp32: a bf16 parameter is joined
// with the 16 low bits that stand beside it (SplitFloat), an fp64 one is rounded. Written to a store of bf16
// weights without low bits, the values are rounded. On any device; in pieces.
#pragma once

#include <span>
#include <string>
#include <unordered_map>

#include "model/weight_source.h"

namespace kiln {

// The store must be materialized and not sharded, and must outlive this. Throws Error otherwise.
class ParamValues final : public WeightSource {
 public:
  ParamValues(RankContext& ctx, ParamStore& store);

  void read(const WeightSpec& weight, int64_t first_row, std::span<float> out) override;
  void write(const WeightSpec& weight, int64_t first_row, std::span<const float> values);

 private:
  struct Place {
    const Param* param;
    const ParamView* view;
  };
  // The flat range of the store's buffers behind some rows.
  Tensor range(const Tensor& flat, const WeightSpec& weight, int64_t first_row, std::size_t count) const;

  RankContext& ctx_;
  ParamStore& store_;
  std::unordered_map<std::string, Place> places_;
};

}  // namespace kiln
