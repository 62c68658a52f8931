// A rank's compiler: regions by what they are called with, each recorded and planned once, and run as one
// node of the tape.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "compile/plan.h"

namespace kiln::compile {

// A region with inputs of certain shapes.
struct CompiledRegion {
  const char* name = "";
  Traced traced;
  Program forward;                                // where no gradient will be asked for
  std::vector<Tensor> tables;                     // on the rank's device
  std::map<std::vector<char>, RegionPlan> plans;  // by the gradients that are wanted

  // A row that a tape has noted: the region, or one of its plans.
  const RegionPlan* plan_at(const void* row) const {
    for (const auto& [wanted, plan] : plans)
      if (&plan == row) return &plan;
    return nullptr;
  }
  bool is(const void* row) const { return row == this || plan_at(row) != nullptr; }
};

class Compiler final : public RegionCompiler {
 public:
  Tensors run(RankContext& ctx, const Region& region, const RegionInputs& in) override;
  double seconds() const override { return seconds_; }
  const std::map<std::string, std::unique_ptr<CompiledRegion>>& regions() const { return regions_; }

 private:
  CompiledRegion& find(RankContext& ctx, const Region& region, const RegionInputs& in);

  std::map<std::string, std::unique_ptr<CompiledRegion>> regions_;
  double seconds_ = 0;
};

}  // namespace kiln::compile
