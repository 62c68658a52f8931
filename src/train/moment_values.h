// AdamW's moments by the names that go to disk, as exact fp32, in pieces: what model/param_values.h is for
// weights.
#pragma once

#include <span>
#include <string>
#include <unordered_map>

#include "model/weight_source.h"
#include "optim/adamw_optimizer.h"

namespace kiln {

enum class Moment { first, second };  // m and v

class MomentValues final : public WeightSource {
 public:
  // The store, not sharded, whose spans the optimizer has. Both must outlive this.
  MomentValues(RankContext& ctx, ParamStore& store, const AdamWOptimizer& optimizer, Moment which);

  void read(const WeightSpec& weight, int64_t first_row, std::span<float> out) override;
  void write(const WeightSpec& weight, int64_t first_row, std::span<const float> values);

 private:
  struct Place {
    int64_t begin, elements;  // in the flat buffer
  };
  Tensor range(const WeightSpec& weight, int64_t first_row, std::size_t count) const;

  RankContext& ctx_;
  Tensor flat_;
  std::unordered_map<std::string, Place> places_;
};

}  // namespace kiln
