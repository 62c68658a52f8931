#include "train/memory_prediction.h"

#include <gtest/gtest.h>

#include <chrono>

#include "model/size_registry.h"
#include "ops/op_list.h"
#include "support/temp_folder.h"
#include "train/run/evaluate.h"
#include "train/trainer.h"

namespace kiln {
namespace {

// What the same run really takes: five steps, each followed by a validation where requested.
MemoryStats measured(const MemoryRequest& request, const RankOptions& rank) {
  TinyRun run;
  run.model = request.model;
  run.step = request.step;
  RankContext ctx(rank);
  Llama model(request.model);
  model.params().materialize(ctx, request.layout);
  Strategy plain;
  TrainStep step(ctx, model, plain, request.step);
  std::vector<int32_t> text(600, 5);
  std::vector<TokenShard> shards;
  shards.emplace_back(std::move(text), "fives");
  const auto tokens =
      std::make_shared<TokenSet>(std::move(shards), static_cast<int32_t>(request.model.vocab), ctx.pool());
  for (int s = 0; s < 5; ++s) {
    std::vector<TinyBatch> batches;
    std::vector<HostBatch> views;
    for (int i = 0; i < request.step.micro_steps; ++i) batches.push_back(tiny_batch(run, s * 7 + i));
    for (const TinyBatch& b : batches) views.push_back(b.host());
    step.run(views, 1e-3);
    step.finish();
    if (request.evaluates) evaluate(ctx, model, tokens, request.step.batch, request.step.context, 3);
  }
  const MemoryStats stats = ctx.allocator().stats();
  ctx.tape().reset();
  return stats;
}

MemoryRequest tiny() {
  const TinyRun run;
  MemoryRequest r;
  r.model = run.model;
  r.model.layers = 3;
  r.step = run.step;
  return r;
}

void expect_exact(const MemoryRequest& request, const RankOptions& rank, const char* what) {
  const MemoryStats predicted = predict_memory(request, rank), real = measured(request, rank);
  for (int t = 0; t < kTagCount; ++t) {
    const Tag tag = static_cast<Tag>(t);
    EXPECT_EQ(predicted.peak[tag], real.peak[tag]) << what << ": " << name_of(tag);
  }
  EXPECT_EQ(predicted.peak_total, real.peak_total) << what;
  EXPECT_GT(predicted.peak_total, 0u);
}

TEST(MemoryPrediction, IsTheRunsOwnPeakToTheByte) {
  RankOptions rank;
  rank.threads = 3;
  expect_exact(tiny(), rank, "fp32");
  MemoryRequest r = tiny();
  r.layout.precision = Precision::bf16;
  expect_exact(r, rank, "bf16");
  r = tiny();
  r.evaluates = true;
  expect_exact(r, rank, "with validation");
  r = tiny();
  r.step.micro_steps = 5;
  expect_exact(r, rank, "five micro-steps");
  r.layout.precision = Precision::bf16;
  expect_exact(r, rank, "five micro-steps in bf16");
  r.step.prefetch = true;
  r.evaluates = true;
  expect_exact(r, rank, "five micro-steps, batches sent ahead");
  for (const Recompute& how : {Recompute::block, Recompute::nested}) {
    r = tiny();
    r.model.recompute = how;
    r.evaluates = true;
    expect_exact(r, rank, "recompute");
  }
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::autocast}) {
    for (const char* plan : {"plan:norms+swiglu", "plan:all*2,none", "plan:qkv+gate_up*1,attention+out*2"}) {
      r = tiny();
      r.layout.precision = precision;
      r.model.recompute = parse_recompute("--recompute", plan);
      expect_exact(r, rank, plan);
      r.step.micro_steps = 3;
      expect_exact(r, rank, plan);
    }
  }
  r = tiny();
  r.model.fused_qkv = r.model.fused_gate_up = r.model.fused_linear_ce = false;
  r.model.tied = true;
  r.evaluates = true;
  rank.variants = parse_variants("attention=naive,rms_norm=composed,linear=naive,adamw=naive");
  expect_exact(r, rank, "nothing fused");
  rank = {};
  rank.threads = 1;
  r = tiny();
  r.step.batch = 3;
  r.step.context = 130;  // blocks beyond the allocator's small ones
  r.model.d_model = 96;
  r.model.d_ff = 257;
  r.model.vocab = 1031;
  expect_exact(r, rank, "larger");
  rank.alloc_mode = AllocMode::raw;
  expect_exact(r, rank, "raw allocations");
}

TEST(MemoryPrediction, KnowsWhatOptionsSave) {
  RankOptions rank;
  rank.threads = 1;
  MemoryRequest r = tiny();
  r.model.layers = 8;
  r.step.batch = 8;
  const std::size_t all = predict_memory(r, rank).peak[Tag::activation];
  r.model.recompute = Recompute::block;
  const std::size_t block = predict_memory(r, rank).peak[Tag::activation];
  EXPECT_LT(2 * block, all);
}

// Of a model no test machine could hold.
TEST(MemoryPrediction, TakesNoMemoryItself) {
  MemoryRequest r;
  r.model = config_of(find_model_size("10b"));
  r.step.batch = 2;
  r.step.context = 2048;
  const MemoryStats stats = predict_memory(r, {});
  const ParamGroups groups = count_params(r.model);
  EXPECT_EQ(groups.total(), param_count(find_model_size("10b")));
  EXPECT_GE(stats.peak[Tag::param], static_cast<std::size_t>(groups.total()) * 4);
  EXPECT_GE(stats.peak[Tag::optim], static_cast<std::size_t>(groups.total()) * 8);
  EXPECT_GT(stats.peak_total, std::size_t{200} << 30);
}

// A mistyped --batch is answered at once, though its tokens alone would be terabytes: the plan reads none.
TEST(MemoryPrediction, OfAHugeBatchIsThereAtOnceAndReadsNoTokens) {
  MemoryRequest r = tiny();
  r.step.batch = int64_t{1} << 20;
  r.step.context = int64_t{1} << 16;
  r.evaluates = true;
  const auto begin = std::chrono::steady_clock::now();
  const MemoryStats stats = predict_memory(r, {});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_GT(stats.peak_total, std::size_t{1} << 40);
}

TEST(MemoryPrediction, TooLittleMemorySaysWhatIsNeededAndTheLargestBatchThatFits) {
  MemoryRequest request = tiny();
  request.step.batch = 40;
  RankOptions rank;
  rank.threads = 1;
  auto peak = [&](int64_t batch) {
    MemoryRequest r = request;
    r.step.batch = batch;
    return predict_memory(r, rank).peak_total;
  };
  const MemoryStats all = predict_memory(request, rank);
  auto said = [&](std::size_t free_memory) {
    return KILN_ERROR_OF((check_fits(request, rank, all, free_memory), 0));
  };
  EXPECT_EQ(said(all.peak_total), "nothing");
  EXPECT_EQ(said(SIZE_MAX), "nothing");

  const std::size_t free_memory = peak(13);
  const int64_t fits = largest_batch(40, free_memory, peak);
  EXPECT_GE(fits, 13);
  EXPECT_LE(peak(fits), free_memory);
  EXPECT_GT(peak(fits + 1), free_memory);
  const std::string refusal = said(free_memory);
  for (const std::string& part :
       {cat("this run needs ", human({all.peak_total}), " of memory; ", human({free_memory}),
            " are free on cpu"),
        cat("param ", human({all.peak[Tag::param]})), cat("grad ", human({all.peak[Tag::grad]})),
        cat("optim ", human({all.peak[Tag::optim]})), cat("activation ", human({all.peak[Tag::activation]})),
        cat("largest --batch that fits is ", fits, " (40 was requested")})
    EXPECT_NE(refusal.find(part), std::string::npos) << part << " in: " << refusal;
  EXPECT_EQ(refusal.find('\n'), std::string::npos);

  const std::string hopeless = said(1000);
  EXPECT_NE(hopeless.find("no --batch fits"), std::string::npos) << hopeless;
}

// Another architecture runs other variants, and what they keep is theirs.
TEST(MemoryPrediction, IsMadeForTheGpuThereIs) {
  MemoryRequest request = tiny();
  request.layout.precision = Precision::fp16;
  request.step.context = 256;
  RankOptions rank;
  rank.device = Device::cuda();
  const MemoryStats hopper = predict_memory(request, rank);
  rank.meta_compute_capability = 75;
  EXPECT_GT(predict_memory(request, rank).peak_total, hopper.peak_total);  // scores in memory: no flash there
  request.layout.precision = Precision::bf16;
  EXPECT_NE(
      complaint([&] { predict_memory(request, rank); }).find("bf16 matmuls need compute capability 8.0"),
      std::string::npos);
  rank.variants.set("attention", "flash");
  request.layout.precision = Precision::fp16;
  EXPECT_NE(
      complaint([&] { predict_memory(request, rank); }).find("flash (cuda): needs compute capability 8.0"),
      std::string::npos);
}

// A limit below the prediction: the run fails where it reaches it, and says what holds the rest.
TEST(MemoryPrediction, ARunThatReachesALimitNamesWhatHoldsTheMemory) {
  const MemoryRequest request = tiny();
  RankOptions rank;
  rank.threads = 1;
  rank.alloc_mode = AllocMode::raw;  // exact: a pool would round the need up
  rank.memory_cap = {predict_memory(request, rank).peak_total / 2};
  const std::string said = complaint([&] { measured(request, rank); });
  for (const char* part : {"[allocator] out of memory on cpu", " wanted for ", "in use ", "param ", "limit "})
    EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
}

TEST(MemoryPrediction, OfSeveralRanksNeedsAStrategy) {
  RankOptions rank;
  rank.world = 2;
  EXPECT_NE(complaint([&] { predict_memory(tiny(), rank); }).find("--strategy is 'none'"), std::string::npos);
  MemoryRequest shared = tiny();
  shared.strategy = "zero1";
  EXPECT_LT(predict_memory(shared, rank).peak[Tag::optim],
            predict_memory(tiny(), {}).peak[Tag::optim] * 6 / 10);
}

TEST(ParamGroups, CountEveryWeightOnce) {
  ModelConfig c = tiny().model;
  const int64_t C = c.d_model, D = c.head_dim();
  ParamGroups g = count_params(c);
  EXPECT_EQ(g.embedding, c.vocab * C);
  EXPECT_EQ(g.head, c.vocab * C);
  EXPECT_EQ(g.norms, (2 * c.layers + 1) * C);
  EXPECT_EQ(g.attention, c.layers * C * D * (2 * c.heads + 2 * c.kv_heads));
  EXPECT_EQ(g.mlp, c.layers * 3 * C * c.d_ff);
  c.tied = true;
  g = count_params(c);
  EXPECT_EQ(g.head, 0);
  EXPECT_EQ(g.embedding, c.vocab * C);
}

}  // namespace
}  // namespace kiln
