#include "studies/ranks/rank_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "autograd/op_observer.h"
#include "base/error.h"
#include "base/plain_number.h"
#include "base/units.h"
#include "device/device_room.h"
#include "dist/comm/local_transport.h"
#include "dist/comm/reduce_ranks.h"
#include "dist/launch/rank_agreement.h"
#include "dist/launch/rank_limit.h"
#include "dist/launch/transports.h"
#include "dist/strategy/bucketed.h"
#include "dist/strategy/fsdp.h"
#include "ops/op_list.h"
#include "perf/comm/overlap_recorder.h"
#include "studies/gate/gate.h"
#include "studies/place.h"
#include "studies/ranks/largest_rank.h"
#include "studies/step/step.h"
#include "studies/variant_check.h"
#include "train/presets.h"

namespace kiln {
namespace {

// Notes the memory at the moment the optimizer begins.
class BeforeUpdate final : public OpObserver {
 public:
  BeforeUpdate(RankContext& ctx, MemoryStats& out) : ctx_(ctx), out_(out) { ctx.add_observer(this); }
  ~BeforeUpdate() override { ctx_.remove_observer(this); }
  BeforeUpdate(const BeforeUpdate&) = delete;
  BeforeUpdate& operator=(const BeforeUpdate&) = delete;

  void arm() { armed_ = true; }
  void on_op_begin(RankContext& ctx, const OpEvent& event) override {
    if (!armed_ || kind_of_op(event.op) != OpKind::optimizer) return;
    armed_ = false;
    out_ = ctx.allocator().stats();
  }

 private:
  RankContext& ctx_;
  MemoryStats& out_;
  bool armed_ = false;
};

// Adds up what the ops state as their cost; an op that calls others is one op.
class CallCount final : public OpObserver {
 public:
  CallCount(RankContext& ctx, RanksTiming& out) : ctx_(ctx), out_(out) { ctx.add_observer(this); }
  ~CallCount() override { ctx_.remove_observer(this); }
  CallCount(const CallCount&) = delete;
  CallCount& operator=(const CallCount&) = delete;

  void on_op_begin(RankContext&, const OpEvent& event) override {
    if (depth_++ > 0) return;
    out_.executed = out_.executed + event.cost;
    ++out_.op_calls;
  }
  void on_op_end(RankContext&, const OpEvent&) override { --depth_; }

 private:
  RankContext& ctx_;
  RanksTiming& out_;
  int depth_ = 0;
};

// Step by step, of every rank.
std::vector<double> slowest(const std::vector<std::vector<double>>& ranks) {
  std::vector<double> most = ranks.front();
  for (const std::vector<double>& times : ranks) {
    for (std::size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], times[i]);
  }
  return most;
}

std::size_t step_of_median_length(const std::vector<double>& seconds) {
  std::vector<std::size_t> order(seconds.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return seconds[a] < seconds[b]; });
  return order[(order.size() - 1) / 2];
}

ComputeTimeline last_of_all_ranks(RankContext& ctx, Communicator& comm, const ComputeTimeline& mine) {
  std::vector<double> moments = {mine.backward_begin, mine.backward_end, mine.end};
  for (const ReadyGradient& g : mine.gradients) moments.push_back(g.ready);
  std::vector<ComputeTimeline> ranks;
  for (const std::vector<double>& m : all_gather_numbers(ctx, comm, moments, "moments of a step")) {
    ComputeTimeline& r = ranks.emplace_back(mine);
    r.backward_begin = m[0];
    r.backward_end = m[1];
    r.end = m[2];
    for (std::size_t i = 0; i < r.gradients.size(); ++i) r.gradients[i].ready = m[3 + i];
  }
  return last_of(ranks);
}

// Every rank has to come to the same answer, or some would wait for others that are gone.
bool all_go_on(RankContext& ctx, Communicator& comm, const std::function<bool()>& stop) {
  if (!stop) return true;
  double mine = stop() ? 1 : 0;
  if (comm.world() == 1) return mine == 0;
  const Tensor t = ctx.empty({1}, DType::f64, Tag::comm);
  ctx.upload(t, &mine);
  comm.all_reduce(ctx, t, "whether to stop").wait(ctx);
  ctx.download(&mine, t);
  return mine == 0;
}

void run_rank(RankContext& ctx, Communicator& comm, const RanksWork& work, const MakeRankStrategy& make,
              RanksTiming& result) {
  RankStrategy made = make(ctx, comm);
  SyntheticStep run(ctx, work.spec, &made.get(), made.partition());
  RanksTiming r;
  ctx.synchronize();
  r.memory.after_init = ctx.allocator().stats();
  BeforeUpdate before(ctx, r.memory.before_step);
  for (int i = 0; i < std::max(1, work.warmups); ++i) {  // the second step finds what the first left behind
    std::optional<CallCount> count;
    if (i == 0) count.emplace(ctx, r);
    before.arm();
    run.run();
  }
  ctx.synchronize();
  // Before the steps that are timed: what timing them needs is not the step's.
  r.memory.after_step = ctx.allocator().stats();
  OverlapRecorder recorder(ctx, comm);
  if (made.observe) made.observe(&recorder);
  if (made.observe_gathers) made.observe_gathers(&recorder);
  std::vector<double> seconds;
  std::vector<OverlapLedger> ledgers;
  std::vector<std::vector<GatherUse>> gathers;
  for (int i = 0; i < work.steps && all_go_on(ctx, comm, work.stop); ++i) {
    comm.barrier(ctx, "a step has ended");
    recorder.prepare_step();
    comm.barrier(ctx, "a step begins");
    recorder.begin_step();
    run.run();
    ledgers.push_back(recorder.end_step());
    gathers.push_back(recorder.gathers());
    seconds.push_back(ledgers.back().end / 1e6);
  }
  if (made.observe) made.observe(nullptr);
  if (made.observe_gathers) made.observe_gathers(nullptr);
  r.volume = made.get().volume();
  const bool meta = ctx.device().is_meta();
  if (!meta) {
    r.loss = run.finish();
    keep_largest_rank(ctx, comm, r.memory, r.memory_rank);
  }
  const std::vector<double> slow =
      meta ? seconds : slowest(all_gather_numbers(ctx, comm, seconds, "times of the steps"));
  const std::size_t middle = slow.empty() ? 0 : step_of_median_length(slow);
  if (made.alone && !meta && !slow.empty())
    r.compute = last_of_all_ranks(ctx, comm, compute_of(ledgers[middle]));
  if (comm.rank() != 0 && !meta && work.processes == nullptr) return;  // threads share the one result
  r.here = comm.rank() == 0;
  if (!slow.empty()) {
    r.timing = summarize(slow);
    r.timing.warmups = work.warmups;
    r.ledger_seconds = slow[middle];
    r.ledger = std::move(ledgers[middle]);
    r.gathers = std::move(gathers[middle]);
  }
  result = std::move(r);
}

}  // namespace

MakeRankStrategy compute_alone(DType wire) {
  return [wire](RankContext&, Communicator&) {
    auto alone = std::make_unique<ComputeAlone>(wire);
    ComputeAlone* const watched = alone.get();
    RankStrategy made{std::move(alone), [watched](BucketObserver* o) { watched->observe(o); }};
    made.alone = true;
    return made;
  };
}

MakeRankStrategy strategy_maker(const std::string& name, const StrategyOptions& options) {
  return [=](RankContext& ctx, Communicator& comm) {
    RankStrategy made{make_strategy(name, options, ctx, comm)};
    if (auto* const bucketed = dynamic_cast<BucketedStrategy*>(made.strategy.get()))
      made.observe = [bucketed](BucketObserver* o) { bucketed->observe(o); };
    if (auto* const sharded = dynamic_cast<FsdpStrategy*>(made.strategy.get()))
      made.observe_gathers = [sharded](GatherObserver* o) { sharded->observe(o); };
    return made;
  };
}

MakeRankStrategy mesh_maker(const std::string& name, const StrategyOptions& options, int tensor_ranks) {
  return [=](RankContext& ctx, Communicator& comm) {
    RankStrategy made;
    made.place = std::make_unique<ParallelRank>(ctx, comm, tensor_ranks, name, options);
    return made;
  };
}

void compare_losses(JudgedRun judged, JudgedRun first, const std::string& first_name) {
  const double loss = judged.run.loss, other = first.run.loss;
  if (std::abs(loss - other) <= 1e-3 * std::abs(other)) {  // NaN is not
    judged.row.gate = first.row.gate = Gate::passed;
  } else {
    judged.row.fail_gate(
        fmt::format("its last loss is {}, that of {} {}", plain(loss, 6), first_name, plain(other, 6)));
  }
}

void check_rank_step(const RanksWork& work, const std::string& folder,
                     const std::function<void(const std::string&)>& progress) {
  // Processes would write over each other's files.
  StepGate gate(work.processes == nullptr ? folder : std::string(), progress);
  RankOptions rank = work.plan.options;
  rank.world = 1;
  const GateReport report = gate.check({work.spec, rank, plan_step(work.spec, rank).ops});
  if (!report.passed())
    throw Error(cat("the step does not pass its check, and was not timed: ", report.reason));
}

int study_ranks(int asked) {
  const RanksRequest launched = launched_request();
  return launched.world > 1 || find_transport(launched.transport).processes ? launched.world : asked;
}

std::string study_transport(const std::string& asked) {
  return asked == "auto" ? launched_request().transport : asked;
}

void check_study_ranks(const RanksStudy& study, int ranks) {
  const std::string& transport = study.transport;
  const RanksRequest launched = launched_request();
  if (transport != launched.transport)
    throw Error(cat("--transport is ", transport, ", and the ranks of this study are ", launched.transport),
                !find_transport(transport).processes
                    ? "leave --transport out"
                    : cat("start them: kiln run --nproc ", std::max(2, ranks), " --transport ", transport,
                          " -- bench ..."),
                ErrorKind::usage);
  if ((launched.world > 1 || find_transport(transport).processes) && ranks != launched.world)
    throw Error(cat("--ranks is ", ranks, ", and ", launched.world, " were started"), "leave --ranks out",
                ErrorKind::usage);
  if (!find_transport(transport).processes && ranks > kMaxThreadRanks)
    throw Error(cat("--ranks is ", ranks, "; at most ", kMaxThreadRanks, " can be threads of one process"),
                {}, ErrorKind::usage);
  if (!find_transport(transport).processes && !study.device.is_meta())
    check_rank_count("--ranks", ranks, study.oversubscribe);
}

int64_t batch_of_rank(const RanksStudy& study, int ranks) {
  if (!study.total_batch) return study.batch;
  if (*study.total_batch % ranks != 0)
    throw Error(cat("--batch is ", *study.total_batch, ", which does not divide into ", ranks, " ranks"),
                cat("take ", (*study.total_batch / ranks + 1) * ranks, ", or --batch-per-rank"),
                ErrorKind::usage);
  return *study.total_batch / ranks;
}

std::string batch_text(const RanksStudy& study) {
  return study.total_batch ? cat("batch ", *study.total_batch) : cat("batch ", study.batch, " on each rank");
}

RanksWork work_of(const RanksStudy& r, int ranks, int64_t batch_of_a_rank) {
  RanksWork w;
  w.plan.ranks = ranks;
  w.plan.options = options_for(r.device, threads_per_rank(r.threads, ranks), r.seed);
  w.plan.options.world = ranks;
  const RunVariants variants = choose_variants(r.preset, "", r.device.target);
  w.plan.options.variants = variants.ops;
  w.plan.comm.link = r.link;
  w.spec.model = config_of(r.size);
  variants.apply_to(w.spec.model);
  w.spec.precision = r.precision;
  w.spec.step.batch = batch_of_a_rank;
  w.spec.step.context = r.context;
  w.spec.step.micro_steps = r.micro_steps;
  w.spec.step.graph = false;
  w.warmups = r.warmups;
  w.steps = r.steps;
  w.stop = r.stop;
  return w;
}

std::unique_ptr<Ranks> launched_ranks(const std::string& config) {
  RanksRequest launched = launched_request();
  if (!find_transport(launched.transport).processes) return nullptr;
  launched.config = config;
  return std::make_unique<Ranks>(launched);
}

RanksTiming time_ranks(const RanksWork& work, const MakeRankStrategy& make) {
  RanksTiming result;
  const RankBody body = [&](RankContext& ctx, Communicator& comm) {
    run_rank(ctx, comm, work, make, result);
  };
  if (work.processes != nullptr) {
    CommOptions comm = launched_request().comm;
    comm.link = work.plan.comm.link;
    work.processes->run(work.plan.options, comm, body);
    return result;
  }
  RanksRequest request;
  request.world = work.plan.ranks;
  request.comm = work.plan.comm;
  run_ranks(request, work.plan.options, body);
  return result;
}

void add_round(RanksTiming& all, RanksTiming round) {
  if (all.timing.samples.empty()) {
    all = std::move(round);
    return;
  }
  if (round.timing.samples.empty()) return;
  std::vector<double> samples = all.timing.samples;
  samples.insert(samples.end(), round.timing.samples.begin(), round.timing.samples.end());
  const int warmups = all.timing.warmups;
  all.timing = summarize(std::move(samples));
  all.timing.warmups = warmups;
  const auto from_median = [&](const RanksTiming& r) { return std::abs(r.ledger_seconds - all.timing.p50); };
  if (from_median(round) < from_median(all)) {
    all.ledger_seconds = round.ledger_seconds;
    all.ledger = std::move(round.ledger);
    all.gathers = std::move(round.gathers);
    all.compute = std::move(round.compute);
  }
}

RanksTiming plan_ranks(const RanksWork& work, const MakeRankStrategy& make, bool uneven) {
  RanksWork planned = work;
  planned.warmups = std::max(1, work.warmups);
  planned.steps = 1;
  planned.stop = nullptr;
  planned.plan.options.device = Device::meta(work.plan.options.device.target);
  planned.plan.options.backend = {};
  planned.plan.options.world = work.plan.ranks;
  RanksTiming largest;
  for (int rank = 0; rank < (uneven ? work.plan.ranks : 1); ++rank) {
    planned.plan.options.rank = rank;
    RanksTiming result;
    RankContext ctx(planned.plan.options);
    Communicator comm(ctx, make_meta_transport(rank, work.plan.ranks, work.plan.comm), work.plan.comm);
    run_rank(ctx, comm, planned, make, result);
    const auto peak = [](const RanksTiming& r) { return r.memory.after_step.peak_total; };
    if (rank > 0 && peak(result) <= peak(largest)) continue;
    const OverlapLedger ledger = rank == 0 ? result.ledger : largest.ledger;  // the first rank's, as measured
    largest = std::move(result);
    largest.ledger = ledger;
    largest.memory_rank = rank;
  }
  return largest;
}

void check_ranks_fit(const RanksWork& work, const MakeRankStrategy& make) {
  const Device& device = work.plan.options.device;
  if (device.is_meta()) return;
  // Ranks of one machine share its memory; of GPUs one rank may have one to itself.
  const int sharing = device.type == DeviceType::cpu ? work.plan.ranks : 1;
  const std::size_t peak = plan_ranks(work, make).memory.after_step.peak_total;
  const std::size_t free_memory = free_memory_on(device);
  if (peak <= free_memory / static_cast<std::size_t>(sharing)) return;
  throw Error(cat("a step needs ", human({peak}), " of memory on each of ", work.plan.ranks, " ranks; ",
                  human({free_memory}), " are free on ", device.str(), sharing > 1 ? " for all of them" : ""),
              "take a smaller --size, --batch or --ctx, or fewer --ranks");
}

int threads_per_rank(int asked, int ranks) {
  if (asked > 0) return asked;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / std::max(1, ranks));
}

}  // namespace kiln
