// ZeRO-1 in its simple form: gradients are summed on all ranks as in DDP, each parameter is updated whole by
// one rank, which alone keeps its moments, and that rank broadcasts the new values. Shards are as uneven as
// the parameters; what is moved is half as much again as the true form (zero.h) moves.
//
// Low halves of split weights are broadcast with the high ones: every rank holds the exact weights.
#pragma once

#include "dist/strategy/ddp.h"

namespace kiln {

class SimpleZeroStrategy final : public DdpStrategy {
 public:
  using DdpStrategy::DdpStrategy;

  void refresh() override;
  std::vector<ParamSpan> spans(const ParamStore& params, SpanUnit unit) const override;
  void after_update() override;

 private:
  std::unordered_map<std::string, int> owners_;  // by name; a parameter keeps its owner when others join
  std::vector<int64_t> load_;                    // elements, by rank
};

}  // namespace kiln
