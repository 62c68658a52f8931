#include "optim/optimizers.h"

#include "base/choice.h"

namespace kiln {
namespace {

using Made = std::unique_ptr<Optimizer>;
using Spans = std::vector<ParamSpan>;

struct Row {
  std::string_view name;
  SpanUnit unit;
  Made (*make)(const OptimizerOptions&, RankContext&, Spans);
};

const Row kRows[] = {
    {"adamw", SpanUnit::elements,
     [](const OptimizerOptions& o, RankContext& ctx, Spans spans) -> Made {
       return std::make_unique<AdamWOptimizer>(ctx, std::move(spans), o.adamw);
     }},
    {"sgd", SpanUnit::elements,
     [](const OptimizerOptions& o, RankContext& ctx, Spans spans) -> Made {
       return std::make_unique<SgdOptimizer>(ctx, std::move(spans), o.sgd);
     }},
};

const Row& find(std::string_view name) {
  return kRows[static_cast<std::size_t>(index_of("--optimizer", name, optimizer_names()))];
}

}  // namespace

std::vector<std::string_view> optimizer_names() {
  std::vector<std::string_view> names;
  for (const Row& r : kRows) names.push_back(r.name);
  return names;
}

SpanUnit span_unit_of(std::string_view optimizer) { return find(optimizer).unit; }

void check_optimizer(std::string_view name) { (void)find(name); }

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, RankContext& ctx,
                                          std::vector<ParamSpan> spans) {
  return find(options.name).make(options, ctx, std::move(spans));
}

}  // namespace kiln
