// The seams, proven together on one transformer block with loss and update: whatever way the step is run, it
// must end in the same bits. Kept for ever: every later part of kiln rests on this.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "autograd/tape.h"
#include "dist/comm/thread_group.h"
#include "dist/ddp.h"
#include "dist/fsdp.h"
#include "support/gpu.h"
#include "support/tiny_run.h"

namespace kiln {
namespace {

RankOptions on(Device d, int threads = 1) {
  RankOptions o;
  o.device = d;
  o.threads = threads;
  o.seed = 11;
  return o;
}

std::vector<double> as_doubles(const std::vector<std::byte>& bytes) {
  std::vector<double> values(bytes.size() / 4);
  for (std::size_t i = 0; i < values.size(); ++i) {
    float f;
    std::memcpy(&f, bytes.data() + 4 * i, 4);
    values[i] = f;
  }
  return values;
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

TEST(Seams, TrainingLearnsSomething) {
  TinyRun run;
  run.steps = 30;
  const TinyResult r = train_tiny(on(Device::cpu()), run);
  ASSERT_EQ(r.losses.size(), 30u);
  EXPECT_NEAR(r.losses.front(), std::log(61.0), 1.5);
  EXPECT_LT(r.losses.back(), 0.7 * r.losses.front());
  for (double n : r.norms) EXPECT_TRUE(std::isfinite(n) && n > 0);
}

TEST(Seams, RecomputeAndNestedRecomputeEndInTheSameBits) {
  for (Precision precision : {Precision::fp32, Precision::bf16}) {
    for (int64_t layers : {1, 3}) {
      TinyRun run;
      run.precision = precision;
      run.model.layers = layers;
      const TinyResult plain = train_tiny(on(Device::cpu()), run);
      for (Recompute r : {Recompute::block, Recompute::nested}) {
        run.model.recompute = r;
        EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu()), run), plain)) << layers << " layers";
      }
    }
  }
}

TEST(Seams, RecomputeKeepsLess) {
  TinyRun run;
  run.model.layers = 6;
  auto activations = [&](Recompute r) {
    run.model.recompute = r;
    return train_tiny(on(Device::meta()), run).memory.peak[Tag::activation];
  };
  const std::size_t none = activations(Recompute::none), block = activations(Recompute::block);
  EXPECT_LT(block, none / 2);
  EXPECT_LE(activations(Recompute::nested), block);
}

TEST(Seams, ThreadCountDoesNotChangeBits) {
  TinyRun run;
  const TinyResult one = train_tiny(on(Device::cpu(), 1), run);
  for (int threads : {2, 3})
    EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu(), threads), run), one)) << threads;
}

TEST(Seams, RunsTwiceTheSame) {
  TinyRun run;
  run.step.micro_steps = 2;
  EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu()), run), train_tiny(on(Device::cpu()), run)));
}

TEST(Seams, UnfusedProjectionsOnViewsAgreeToRounding) {
  TinyRun run;
  const TinyResult fused = train_tiny(on(Device::cpu()), run);
  run.model.fused_qkv = run.model.fused_gate_up = false;
  const TinyResult unfused = train_tiny(on(Device::cpu()), run);
  EXPECT_NEAR(fused.losses.front(), unfused.losses.front(),
              1e-6);  // the first forward is the same arithmetic
  // dx sums the three projections' shares in another order, so later steps agree to rounding only.
  EXPECT_LT(relative_distance(unfused.values, fused.values), 1e-3);
}

TEST(Seams, HeadAndLossAsOneOpAgreeToRoundingAndKeepLess) {
  for (bool tied : {false, true}) {
    TinyRun run;
    run.model.tied = tied;
    const TinyResult fused = train_tiny(on(Device::cpu()), run);
    run.model.fused_linear_ce = false;
    const TinyResult apart = train_tiny(on(Device::cpu()), run);
    EXPECT_NEAR(fused.losses.front(), apart.losses.front(), 1e-6);
    EXPECT_LT(relative_distance(fused.values, apart.values), 1e-3);
  }
  TinyRun wide;  // enough tokens that their logits would be most of the memory
  wide.model.vocab = 5000;
  wide.step.batch = 64;
  wide.step.context = 32;
  auto peak = [&](bool fused) {
    wide.model.fused_linear_ce = fused;
    return train_tiny(on(Device::meta()), wide).memory.peak_total;
  };
  EXPECT_LT(peak(true), peak(false) / 2);
}

TEST(Seams, OneUpdateOfTheWholeModelAgreesWithOnePerParameter) {
  for (Precision precision : {Precision::fp32, Precision::bf16}) {
    TinyRun run;
    run.precision = precision;
    run.steps = 2;
    RankOptions naive = on(Device::cpu());
    naive.variants.set("adamw", "naive");
    const TinyResult whole = train_tiny(on(Device::cpu()), run), each = train_tiny(naive, run);
    EXPECT_LT(relative_distance(whole.m, each.m), 1e-4);
    EXPECT_NEAR(whole.losses.back(), each.losses.back(), precision == Precision::fp32 ? 1e-5 : 1e-2);
  }
}

TEST(Seams, TiedEmbeddingTrainsAndRecomputesToTheSameBits) {
  TinyRun run;
  run.model.tied = true;
  run.steps = 20;
  const TinyResult plain = train_tiny(on(Device::cpu()), run);
  EXPECT_LT(plain.losses.back(), plain.losses.front());
  run.model.recompute = Recompute::block;
  EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu()), run), plain));
}

TEST(Seams, AccumulationOverMicroStepsIsTheWholeBatchToRounding) {
  TinyRun halves;
  halves.step.micro_steps = 2;
  TinyRun whole;
  whole.step.batch = 2 * halves.step.batch;
  const TinyResult a = train_tiny(on(Device::cpu()), halves), b = train_tiny(on(Device::cpu()), whole);
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 1e-5);
  EXPECT_LT(relative_distance(a.values, b.values), 1e-3);
}

void expect_meta_predicts(Device real, DeviceType target, bool graph) {
  for (Precision precision : {Precision::fp32, Precision::bf16}) {
    for (Recompute r : {Recompute::none, Recompute::block, Recompute::nested}) {
      for (int micro_steps : {1, 2}) {
        TinyRun run;
        run.precision = precision;
        run.model.layers = 2;
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

TEST(Seams, MetaPredictsThePeaksOfTheCpu) { expect_meta_predicts(Device::cpu(), DeviceType::cpu, false); }

// One process with two micro-steps does the arithmetic of two ranks with one each, in the same order.
void expect_two_ranks_equal_one(
    Device device, bool exact,
    const std::function<std::unique_ptr<Strategy>(RankContext&, Communicator&)>& make) {
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
        EXPECT_EQ(ranks[0].m, reference.m);
      } else {
        EXPECT_LT(relative_distance(ranks[0].values, reference.values), 1e-3);
      }
      continue;
    }
    // Each parameter is cut in two: put the halves together again in the layout of one rank.
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
        const int64_t piece = q.padded / 2;
        const double w = half[e / piece][q.offset / 2 + e % piece], r = whole[p.offset + e];
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

TEST(Seams, TwoRanksReducingArenaRangesEqualOne) {
  expect_two_ranks_equal_one(Device::cpu(), true, [](RankContext& ctx, Communicator& comm) {
    return std::make_unique<DdpStrategy>(ctx, comm);
  });
}

TEST(Seams, TwoRanksGatheringShardsOnUseEqualOne) {
  expect_two_ranks_equal_one(Device::cpu(), true, [](RankContext& ctx, Communicator& comm) {
    return std::make_unique<FsdpStrategy>(ctx, comm);
  });
}

TEST(Seams, ShardedRanksRecomputeAndTieToo) {
  TinyRun run;
  run.model.layers = 2;
  run.model.tied = true;
  std::vector<TinyResult> plain(2), again(2);
  for (auto* results : {&plain, &again}) {
    run_thread_ranks(2, on(Device::cpu()), [&](RankContext& ctx, Communicator& comm) {
      FsdpStrategy strategy(ctx, comm);
      (*results)[ctx.rank()] = train_tiny(ctx, run, strategy);
    });
    run.model.recompute = Recompute::nested;
  }
  for (int r : {0, 1}) EXPECT_TRUE(same_bits(plain[r], again[r]));
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

TEST(Seams, PlantedNanIsNamedAndWeightsStay) {
  expect_nan_is_named(Device::cpu(), false, "swiglu", Pass::forward, "layers.0.mlp");
  expect_nan_is_named(Device::cpu(), false, "attention", Pass::backward, "layers.0.attention");
  expect_nan_is_named(Device::cpu(), false, "linear_cross_entropy", Pass::forward, "loss");
}

TEST(Seams, TokenOutsideTheVocabularyIsNamed) {
  RankContext ctx(on(Device::cpu()));
  TinyRun run;
  Llama model(run.model);
  Strategy plain;
  model.params().materialize(ctx);
  TrainStep step(ctx, model, plain, run.step);
  TinyBatch b = tiny_batch(run, 0);
  b.tokens[5] = 61;
  const HostBatch view = b.host();
  step.run({&view, 1}, run.lr);
  try {
    step.finish();
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("[embedding]"), std::string::npos) << e.what();
  }
}

TEST(Seams, TwoContextsTrainDifferentModelsSideBySide) {
  TinyRun a, b;
  b.model.layers = 2;
  b.model.d_model = 32;
  b.model.heads = 4;
  b.precision = Precision::bf16;
  const TinyResult alone_a = train_tiny(on(Device::cpu(), 2), a),
                   alone_b = train_tiny(on(Device::cpu(), 2), b);
  TinyResult beside_a, beside_b;
  std::thread first([&] { beside_a = train_tiny(on(Device::cpu(), 2), a); });
  std::thread second([&] { beside_b = train_tiny(on(Device::cpu(), 2), b); });
  first.join();
  second.join();
  EXPECT_TRUE(same_bits(beside_a, alone_a));
  EXPECT_TRUE(same_bits(beside_b, alone_b));
}

TEST(Seams, EveryFailedAllocationIsACleanError) {
  TinyRun run;
  run.steps = 2;
  int64_t allocations = 0;
  {
    RankContext ctx(on(Device::cpu()));
    Strategy plain;
    train_tiny(ctx, run, plain);
    allocations = ctx.allocator().allocation_count();
  }
  for (int64_t n = 1; n <= allocations; ++n) {
    RankContext ctx(on(Device::cpu()));
    Strategy plain;
    ctx.allocator().fail_at(n);
    try {
      train_tiny(ctx, run, plain);
      FAIL() << "allocation " << n << " of " << allocations << " failed unnoticed";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("out of memory"), std::string::npos) << e.what();
    }
    ctx.tape().reset();
    EXPECT_EQ(ctx.allocator().stats().live_total, 0u) << "leak after allocation " << n << " failed";
  }
}

class CudaSeams : public testing::Test {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

TEST_F(CudaSeams, GraphReplayEndsInTheBitsOfEager) {
  for (Precision precision : {Precision::fp32, Precision::bf16}) {
    for (Recompute r : {Recompute::none, Recompute::nested}) {
      for (int micro_steps : {1, 3}) {
        TinyRun run;
        run.precision = precision;
        run.model.layers = 2;
        run.model.recompute = r;
        run.step.micro_steps = micro_steps;
        run.steps = 6;
        run.step.graph = false;
        const TinyResult eager = train_tiny(on(Device::cuda()), run);
        run.step.graph = true;
        const TinyResult graph = train_tiny(on(Device::cuda()), run);
        EXPECT_FALSE(eager.captured);
        EXPECT_TRUE(graph.captured);
        EXPECT_TRUE(same_bits(eager, graph));
      }
    }
  }
}

TEST_F(CudaSeams, RecomputeAndNestedRecomputeEndInTheSameBits) {
  TinyRun run;
  run.model.layers = 3;
  const TinyResult plain = train_tiny(on(Device::cuda()), run);
  for (Recompute r : {Recompute::block, Recompute::nested}) {
    run.model.recompute = r;
    EXPECT_TRUE(same_bits(train_tiny(on(Device::cuda()), run), plain));
  }
}

TEST_F(CudaSeams, AgreesWithTheCpu) {
  TinyRun run;
  run.steps = 3;
  run.lr = 1e-3;
  const TinyResult cpu = train_tiny(on(Device::cpu()), run), gpu = train_tiny(on(Device::cuda()), run);
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 1e-5);
    EXPECT_NEAR(gpu.norms[i] / cpu.norms[i], 1, 1e-5);
  }
  // Adam divides by the gradient's own size, so a rounding of a near-zero gradient moves a weight by up to
  // lr.
  EXPECT_LT(relative_distance(gpu.values, cpu.values), 1e-4);
  RankContext a(on(Device::cpu())), b(on(Device::cuda()));
  Llama on_cpu(run.model), on_gpu(run.model);
  on_cpu.params().materialize(a);
  on_gpu.params().materialize(b);
  EXPECT_EQ(fetch_bytes(a, on_cpu.params().values()),
            fetch_bytes(b, on_gpu.params().values()));  // same normals
}

TEST_F(CudaSeams, MetaPredictsThePeaksOfEagerAndCaptured) {
  expect_meta_predicts(Device::cuda(), DeviceType::cuda, false);
  expect_meta_predicts(Device::cuda(), DeviceType::cuda, true);
}

TEST_F(CudaSeams, TwoRanksReducingArenaRangesEqualOne) {
  expect_two_ranks_equal_one(Device::cuda(), false, [](RankContext& ctx, Communicator& comm) {
    return std::make_unique<DdpStrategy>(ctx, comm);
  });
}

TEST_F(CudaSeams, TwoRanksGatheringShardsOnUseEqualOne) {
  expect_two_ranks_equal_one(Device::cuda(), false, [](RankContext& ctx, Communicator& comm) {
    return std::make_unique<FsdpStrategy>(ctx, comm);
  });
}

TEST_F(CudaSeams, PlantedNanIsNamedAndWeightsStay) {
  expect_nan_is_named(Device::cuda(), false, "swiglu", Pass::forward, "layers.0.mlp");
  expect_nan_is_named(Device::cuda(), true, "attention", Pass::backward, "layers.0.attention");
}

TEST_F(CudaSeams, TwoContextsTrainDifferentModelsSideBySide) {
  TinyRun a, b;
  b.model.layers = 2;
  b.step.graph = false;
  a.step.graph = false;
  const TinyResult alone_a = train_tiny(on(Device::cuda()), a), alone_b = train_tiny(on(Device::cuda()), b);
  TinyResult beside_a, beside_b;
  std::thread first([&] { beside_a = train_tiny(on(Device::cuda()), a); });
  std::thread second([&] { beside_b = train_tiny(on(Device::cuda()), b); });
  first.join();
  second.join();
  EXPECT_TRUE(same_bits(beside_a, alone_a));
  EXPECT_TRUE(same_bits(beside_b, alone_b));
}

}  // namespace
}  // namespace kiln
