#include "studies/measure/measured_ranks.h"

#include <algorithm>

#include "base/error.h"
#include "dist/comm/reduce_ranks.h"
#include "studies/ranks/rank_steps.h"

namespace kiln {
namespace {

RanksWork work_of(const MeasureRequest& r, const StepRow& row) {
  RanksWork w;
  w.plan.ranks = r.ranks;
  w.plan.options = rank_for(r.step, row);
  w.plan.options.threads = threads_per_rank(r.step.threads, r.ranks);
  w.plan.options.world = r.ranks;
  w.spec = row.spec;
  w.spec.step.graph = false;
  w.warmups = std::max(2, r.step.warmups);
  w.steps = r.step.steps;
  w.stop = r.step.stop;
  return w;
}

}  // namespace

void check_measured_ranks(const MeasureRequest& r) {
  if (r.strategy == "none" && r.ranks != 1)
    throw Error(cat("--ranks is ", r.ranks, ", and no --strategy says how they share the step"),
                "give --strategy, for example ddp:bucketed", ErrorKind::usage);
  if (r.strategy == "none") return;
  if (r.ranks < 2 || r.ranks > kMaxThreadRanks)
    throw Error(cat("--ranks is ", r.ranks, "; a strategy takes from 2 to ", kMaxThreadRanks,
                    " ranks that are threads of one process"),
                {}, ErrorKind::usage);
  for (const StepMode mode : r.step.modes) {
    if (mode != StepMode::full)
      throw Error(cat("--mode is ", name_of(mode), ", and ranks share whole steps"), "use --mode full",
                  ErrorKind::usage);
  }
}

void time_ranks_of(const MeasureRequest& r, MeasuredStep& step, const Progress& progress) {
  const RanksWork work = work_of(r, step.row);
  const StrategyOptions options{};
  progress(cat("timing ", r.strategy, " on ", r.ranks, " ranks"));
  step.load = load_average();
  const RanksTiming timing = time_ranks(work, strategy_maker(r.strategy, options));
  const std::string other = r.strategy == "ddp:naive" ? "ddp:flat" : "ddp:naive";
  RowOutcome reference;
  step.row.gate = Gate::not_verified;
  compare_losses({step.row, timing}, {reference, time_ranks(work, strategy_maker(other, options))}, other);
  if (!step.timed()) return;
  step.row.timing = timing.timing;
  step.row.measured = timing.memory.after_step;
  step.row.last_loss = timing.loss;
  step.share =
      RankShare{r.strategy, r.ranks, timing.executed, timing.op_calls, timing.volume.sent_per_rank(r.ranks)};
}

}  // namespace kiln
