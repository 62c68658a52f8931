#include "support/fsdp_runs.h"

#include <gtest/gtest.h>

#include <thread>

#include "autograd/tape.h"
#include "dist/comm/threads/thread_group.h"
#include "dist/strategy/fsdp.h"
#include "dist/strategy/gather_full.h"
#include "support/watched_backend.h"

namespace kiln {
namespace {

class CountingBackend final : public WatchedBackend {
 public:
  explicit CountingBackend(std::atomic<int64_t>& blocks) : blocks_(blocks) {}
  void* allocate(std::size_t bytes) override {
    void* p = WatchedBackend::allocate(bytes);
    if (p != nullptr) ++blocks_;
    return p;
  }
  void release(void* ptr) override {
    if (ptr != nullptr) --blocks_;
    WatchedBackend::release(ptr);
  }
  // Streams and events as on the CPU: no order to keep, nothing to log.
  Stream make_stream() override { return {}; }
  Event make_event() override { return {}; }
  void destroy(Event) override {}
  void record(Event, Stream) override {}
  void wait(Stream, Event) override {}

 private:
  std::atomic<int64_t>& blocks_;
};

}  // namespace

RankOptions CountedMemory::options() {
  RankOptions o;
  o.threads = 1;
  o.seed = 11;
  o.backend = [this] { return std::make_unique<CountingBackend>(blocks); };
  return o;
}

StateBytes whole_state(RankContext& ctx, Communicator& comm, ParamStore& store, const Optimizer* optimizer) {
  StateBytes state;
  const auto put = [&](const std::string& what, const Param& p, const Tensor& piece) {
    state[what + p.name] = fetch_bytes(ctx, gather_whole(ctx, comm, p, piece));
  };
  for (const Param& p : store.params()) {
    put("value.", p, store.local_value(p));
    if (store.low().defined()) put("low.", p, store.local_low(p));
    if (optimizer == nullptr) continue;
    int64_t at = 0;
    for (const ParamSpan& s : optimizer->spans()) {
      for (const OptimizerState& of : optimizer->state()) {
        if (s.name == p.name) put(cat(of.name, "."), p, of.values.narrow(0, at, s.value.numel()));
      }
      at += s.value.numel();
    }
  }
  return state;
}

void Jitter::on_op_end(RankContext&, const OpEvent&) {
  state_ = state_ * 6364136223846793005u + 1442695040888963407u;
  const auto chance = state_ >> 60;
  if (chance == 0) std::this_thread::sleep_for(std::chrono::microseconds((state_ >> 40) % 300));
  if (chance == 1) std::this_thread::yield();
}

StrategyOf fsdp(int prefetch) {
  return [prefetch](RankContext& ctx, Communicator& comm) {
    return std::make_unique<FsdpStrategy>(ctx, comm, FsdpOptions{prefetch});
  };
}

RankOptions one_thread() {
  RankOptions o;
  o.threads = 1;
  o.seed = 5;
  return o;
}

RanksResult train_ranks(int world, const TinyRun& run, const StrategyOf& make, uint64_t jitter,
                        const std::function<void(Strategy&)>& after) {
  RankOptions options;
  options.threads = 1;
  options.seed = 11;
  std::vector<RanksResult> ranks(static_cast<std::size_t>(world));
  run_thread_ranks(world, options, [&](RankContext& ctx, Communicator& comm) {
    std::optional<Jitter> noise;
    if (jitter > 0) noise.emplace(ctx, jitter);
    Llama model(run.model);
    const auto strategy = make(ctx, comm);
    model.params().materialize(ctx,
                               layout_for(run.precision, run.step, ctx.world(), strategy->shards_params()));
    strategy->attach(model.params());
    TrainStep step(ctx, model, *strategy, run.step);
    RanksResult& result = ranks[static_cast<std::size_t>(ctx.rank())];
    int64_t number = 0;
    for (int s = 0; s < run.steps; ++s) {
      std::vector<TinyBatch> batches;
      std::vector<HostBatch> views;
      for (int i = 0; i < run.step.micro_steps; ++i)
        batches.push_back(tiny_batch(run, number + i * ctx.world() + ctx.rank()));
      number += run.step.micro_steps * ctx.world();
      for (const TinyBatch& b : batches) views.push_back(b.host());
      step.run(views, run.lr);
      const StepScalars last = step.finish();
      result.losses.push_back(last.loss);
      result.norms.push_back(last.grad_norm);
    }
    ctx.synchronize();
    result.state = whole_state(ctx, comm, model.params(), &step.optimizer());
    if (after) after(*strategy);
    ctx.tape().reset();
  });
  for (const RanksResult& r : ranks) {
    EXPECT_EQ(r.state, ranks[0].state);
    EXPECT_EQ(r.losses, ranks[0].losses);
    EXPECT_EQ(r.norms, ranks[0].norms);
  }
  return ranks[0];
}

}  // namespace kiln
