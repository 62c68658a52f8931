#include "dist/comm/run_ranks.h"

#include "base/error.h"
#include "dist/comm/local_transport.h"
#include "dist/comm/reduce_ranks.h"
#include "dist/comm/thread_group.h"

namespace kiln {
namespace {

std::string too_many_threads(int ranks) {
  return ranks > kMaxThreadRanks ? cat("at most ", kMaxThreadRanks, " ranks can be threads of one process")
                                 : std::string();
}

void run_threads(const RankPlan& plan, const RankBody& body) {
  run_thread_ranks(plan.ranks, plan.options, body, plan.comm);
}

// One rank needs no thread of its own.
void run_alone(const RankPlan& plan, const RankBody& body) {
  RankContext ctx(plan.options);
  Communicator comm(ctx, make_alone_transport(ctx.backend()), plan.comm);
  body(ctx, comm);
  ctx.synchronize();
}

struct Row {
  std::string_view name;
  std::string (*unavailable)(int ranks);  // empty: it can run
  void (*run)(const RankPlan&, const RankBody&);
};

const Row kRows[] = {
    {"threads", too_many_threads, run_threads},
};

const Row& find(std::string_view name) {
  std::string all = "auto";
  for (const Row& r : kRows) {
    if (r.name == name || name == "auto") return r;
    all += cat(", ", r.name);
  }
  throw Error(cat("--transport is '", name, "'; expected one of: ", all), {}, ErrorKind::usage);
}

}  // namespace

void check_transport(std::string_view name, int ranks) {
  if (const std::string why = find(name).unavailable(ranks); !why.empty())
    throw Error(cat("--transport ", name, ": ", why), {}, ErrorKind::unavailable);
}

void run_ranks(const RankPlan& plan, const RankBody& body) {
  check_transport(plan.transport, plan.ranks);
  if (plan.transport == "auto" && plan.ranks == 1)
    run_alone(plan, body);
  else
    find(plan.transport).run(plan, body);
}

}  // namespace kiln
