// The optimizers by name, in one table.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "optim/adamw_optimizer.h"
#include "optim/sgd_optimizer.h"

namespace kiln {

// Each optimizer reads its own.
struct OptimizerOptions {
  std::string name = "adamw";
  AdamWOptions adamw = {};
  SgdOptions sgd = {};

  void set_decay(double decay) { adamw.decay = sgd.decay = decay; }
};

// adamw, sgd.
std::vector<std::string_view> optimizer_names();

// What its spans must be: Strategy::spans() cuts them so, or refuses. All three throw Error(usage) that lists
// the names where there is no such optimizer.
SpanUnit span_unit_of(std::string_view optimizer);
void check_optimizer(std::string_view name);
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, RankContext& ctx,
                                          std::vector<ParamSpan> spans);

}  // namespace kiln
