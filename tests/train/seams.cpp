#include "train/seams.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "dist/comm/threads/thread_group.h"
#include "dist/strategy/ddp.h"
#include "dist/strategy/fsdp.h"

namespace kiln {
namespace {

std::vector<double> as_doubles(const std::vector<std::byte>& bytes) {
  std::vector<double> values(bytes.size() / 4);
  for (std::size_t i = 0; i < values.size(); ++i) {
    float f;
    std::memcpy(&f, bytes.data() + 4 * i, 4);
    values[i] = f;
  }
  return values;
}

// Writes a NaN into one element of an op's output, from a given step on: captured into graphs like any other
// work.
class NanPlanter final : public OpObserver {
 public:
  NanPlanter(RankContext& ctx, std::string op, Pass pass) : ctx_(ctx), op_(std::move(op)), pass_(pass) {
    pinned_ = static_cast<float*>(ctx.backend().allocate_pinned(sizeof(float)));
    *pinned_ = NAN;
    ctx.add_observer(this);
  }
  ~NanPlanter() override {
    ctx_.remove_observer(this);
    ctx_.backend().release_pinned(pinned_);
  }
  bool armed = false;
  void on_op_end(RankContext& ctx, const OpEvent& e) override {
    if (!armed || e.op != op_ || e.pass != pass_) return;
    ctx.backend().copy_to_device(e.outputs[0].tensor.raw(), pinned_, sizeof(float), ctx.compute());
  }

 private:
  RankContext& ctx_;
  std::string op_;
  Pass pass_;
  float* pinned_;
};

}  // namespace

RankOptions on(Device d, int threads) {
  RankOptions o;
  o.device = d;
  o.threads = threads;
  o.seed = 11;
  return o;
}

double relative_distance(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const auto x = as_doubles(a), y = as_doubles(b);
  double d = 0, n = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    d += (x[i] - y[i]) * (x[i] - y[i]);
    n += y[i] * y[i];
  }
  return std::sqrt(d / n);
}

void expect_meta_predicts(Device real, DeviceType target, bool graph) {
  for (Precision precision :
       {Precision::fp32, Precision::bf16, Precision::autocast, Precision::pure_bf16, Precision::fp16}) {
    for (const char* text :
         {"none", "block", "every:2", "nested", "plan:norms+swiglu*2,qkv+attention+gate_up"}) {
      const Recompute r = parse_recompute("--recompute", text);
      for (int micro_steps : {1, 2}) {
        TinyRun run;
        run.precision = precision;
        run.model.layers = 3;
        run.model.recompute = r;
        run.step.micro_steps = micro_steps;
        run.step.graph = graph;
        const MemoryStats seen = train_tiny(on(real), run).memory;
        const MemoryStats predicted = train_tiny(on(Device::meta(target)), run).memory;
        for (int t = 0; t < kTagCount; ++t) {
          EXPECT_EQ(seen.peak.values[t], predicted.peak.values[t]) << name_of(static_cast<Tag>(t));
        }
        EXPECT_EQ(seen.peak_total, predicted.peak_total);
      }
    }
  }
}

void expect_two_ranks_equal_one(Device device, bool exact, const MakeStrategy& make) {
  for (int accumulation : {1, 2}) {
    TinyRun run;
    run.step.graph = false;
    run.model.layers = 2;
    TinyRun single = run;
    single.step.micro_steps = 2 * accumulation;
    run.step.micro_steps = accumulation;
    const TinyResult reference = train_tiny(on(device), single);
    std::vector<TinyResult> ranks(2);
    bool sharded = false;
    run_thread_ranks(2, on(device), [&](RankContext& ctx, Communicator& comm) {
      const auto strategy = make(ctx, comm);
      if (ctx.rank() == 0) sharded = strategy->shards_params();
      ranks[ctx.rank()] = train_tiny(ctx, run, *strategy);
    });
    ASSERT_EQ(ranks[0].losses, ranks[1].losses);  // every rank knows the run's loss
    ASSERT_EQ(ranks[0].norms, ranks[1].norms);
    for (std::size_t i = 0; i < reference.losses.size(); ++i) {
      EXPECT_NEAR(ranks[0].losses[i], reference.losses[i], 1e-5);
      // Clipping and Adam both hide a gradient that is twice as large.
      EXPECT_NEAR(ranks[0].norms[i] / reference.norms[i], 1, 1e-4);
    }
    if (!sharded) {
      EXPECT_EQ(ranks[0].values, ranks[1].values);
      // With accumulation the order is (0+2)+(1+3) instead of ((0+1)+2)+3: equal to rounding.
      if (exact && accumulation == 1) {
        EXPECT_EQ(ranks[0].values, reference.values);
        EXPECT_EQ(ranks[0].state, reference.state);
      } else {
        EXPECT_LT(relative_distance(ranks[0].values, reference.values), 1e-3);
      }
      continue;
    }
    // Each parameter is cut in two: join the halves in the layout of one rank.
    RankOptions layout = on(Device::meta());
    RankContext meta(layout);
    Llama model(run.model);
    RankOptions two = layout;
    two.world = 2;
    RankContext meta_two(two);
    Llama model_two(run.model);
    model.params().materialize(meta);
    model_two.params().materialize(meta_two, {Precision::fp32, true});
    auto whole = as_doubles(reference.values);
    std::vector<std::vector<double>> half = {as_doubles(ranks[0].values), as_doubles(ranks[1].values)};
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < model.params().params().size(); ++i) {
      const Param &p = model.params().params()[i], &q = model_two.params().params()[i];
      for (int64_t e = 0; e < p.shape.numel(); ++e) {
        const double w = half[e / q.local()][q.offset + e % q.local()], r = whole[p.offset + e];
        if (exact && accumulation == 1) {
          ASSERT_EQ(w, r) << p.name << " element " << e;
        }
        difference += (w - r) * (w - r);
        norm += r * r;
      }
    }
    EXPECT_LT(std::sqrt(difference / norm), 1e-3);
  }
}

std::unique_ptr<Strategy> make_ddp(RankContext& ctx, Communicator& comm) {
  return std::make_unique<DdpStrategy>(ctx, comm);
}

std::unique_ptr<Strategy> make_fsdp(RankContext& ctx, Communicator& comm) {
  return std::make_unique<FsdpStrategy>(ctx, comm);
}

void expect_nan_is_named(Device device, bool graph, const std::string& op, Pass pass,
                         const std::string& scope) {
  RankContext ctx(on(device));
  TinyRun run;
  run.step.graph = graph;
  Llama model(run.model);
  Strategy plain;
  model.params().materialize(ctx);
  plain.attach(model.params());
  TrainStep step(ctx, model, plain, run.step);
  NanPlanter planter(ctx, op, pass);
  auto train = [&](int number) {
    const TinyBatch b = tiny_batch(run, number);
    const HostBatch view = b.host();
    return step.run({&view, 1}, run.lr);
  };
  train(0);
  ctx.synchronize();
  const auto before = fetch_bytes(ctx, model.params().values());
  planter.armed = true;
  train(1);  // goes bad; the host does not know yet
  try {
    train(2);  // learns of it here
    FAIL() << "a planted NaN went unnoticed";
  } catch (const Error& e) {
    const std::string message = e.what();
    EXPECT_NE(message.find("step 2 is not finite"), std::string::npos) << message;
    EXPECT_NE(message.find("[" + op + "]"), std::string::npos) << message;
    EXPECT_NE(message.find(scope), std::string::npos) << message;
    EXPECT_NE(message.find(pass == Pass::forward ? "forward" : "backward"), std::string::npos) << message;
  }
  EXPECT_EQ(fetch_bytes(ctx, model.params().values()), before);
}

}  // namespace kiln
