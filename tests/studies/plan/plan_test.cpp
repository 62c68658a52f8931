// kiln plan against what is known by arithmetic: times on machines made up so that they can be worked out by
// hand, memory against the ranks' own meta runs, and layers against models of more of them.
#include "studies/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "studies/plan/paper_schedule.h"
#include "studies/ranks/rank_steps.h"
#include "studies/step/step.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

constexpr double kFlops = 1e12;

// Nothing waits for memory, nor for a link unless a test gives one.
PlanRequest request(const char* size = "micro") {
  PlanRequest q;
  q.model = NamedModel(find_model_size(size));
  q.hardware.name = "made-up";
  q.hardware.title = "a device made up";
  q.hardware.memory = 1e12;
  q.hardware.bytes_per_s = 1e30;
  q.hardware.flops = {{"fp32", kFlops}, {"bf16", kFlops}};
  q.link = LinkModel{0, 1e30};
  q.inter_link = LinkModel{0, 1e30};
  q.precision = Precision::fp32;
  q.context = 16;
  q.batch_per_device = 2;
  return q;
}

const PlanRow& row_of(const PlanReport& report, const std::string& name) {
  for (const PlanRow& r : report.rows)
    if (r.layout.name() == name) return r;
  throw Error(cat("no row ", name));
}

MemoryRequest one_rank(const ModelConfig& model, Precision precision, int64_t batch, int micro_steps = 1) {
  MemoryRequest r;
  r.model = model;
  r.step.batch = batch;
  r.step.context = 16;
  r.step.micro_steps = micro_steps;
  r.step.graph = false;
  r.layout = layout_for(precision, r.step);
  return r;
}

// --- layers

TEST(RankSchedule, LayersOfAnyDepthFollowFromTwoAndThree) {
  for (const DeviceType target : {DeviceType::cpu, DeviceType::cuda}) {
    for (const Recompute& recompute : {Recompute::none, Recompute::block}) {
      for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        const auto schedule = [&](int64_t layers) {
          ModelConfig c = config_of(find_model_size("micro"));
          c.layers = layers;
          c.recompute = recompute;
          RankOptions rank;
          rank.device = Device::meta(target);
          return record_schedule(one_rank(c, precision, 2), rank);
        };
        const RankSchedule two = schedule(2), three = schedule(3);
        for (const int64_t layers : {5, 12}) {
          const Cost whole = schedule(layers).cost(), foreseen = cost_of_layers(two, three, 3, layers);
          EXPECT_DOUBLE_EQ(whole.flops, foreseen.flops) << layers;
          EXPECT_DOUBLE_EQ(whole.bytes, foreseen.bytes) << layers;
        }
      }
    }
  }
}

TEST(RankSchedule, OfOneRankHasTheOpsOfThePlannedStep) {
  const ModelConfig c = config_of(find_model_size("nano"));
  RankOptions rank;
  rank.device = Device::meta();
  StepSpec spec;
  spec.model = c;
  spec.step = one_rank(c, Precision::fp32, 2).step;
  const RankSchedule schedule = record_schedule(one_rank(c, Precision::fp32, 2), rank);
  const StepPlan planned = plan_step(spec, rank);
  ASSERT_EQ(schedule.ops.size(), planned.ops.size());
  for (std::size_t i = 0; i < planned.ops.size(); ++i) {
    EXPECT_EQ(schedule.ops[i].op, planned.ops[i].op);
    EXPECT_EQ(schedule.ops[i].cost.flops, planned.ops[i].cost.flops);
  }
}

TEST(RankSchedule, GradientsBecomeCompleteInTheOrderOfTheArena) {
  PlanRequest q = request();
  RankOptions rank;
  rank.device = Device::meta();
  rank.world = 2;
  MemoryRequest r = one_rank(q.config(), Precision::fp32, 2);
  r.layout = layout_for(Precision::fp32, r.step, 2);
  r.strategy = "ddp:bucketed";
  const RankSchedule s = record_schedule(r, rank);
  const ScheduleTimes t = times_of(
      s, [](const TimedOp&) { return OpTime{.us = 1}; }, 4, [](std::string_view, int64_t) { return 0.0; });
  ASSERT_EQ(t.micro_steps.size(), 1u);
  const ComputeTimeline& c = t.micro_steps.front().compute;
  ASSERT_EQ(c.gradients.size(), s.weights.size());
  EXPECT_TRUE(std::is_sorted(c.gradients.begin(), c.gradients.end(),
                             [](const auto& a, const auto& b) { return a.offset < b.offset; }));
  EXPECT_GT(c.gradients.front().ready, c.backward_begin);
  EXPECT_LE(c.gradients.back().ready, c.backward_end);
  EXPECT_TRUE(t.micro_steps.front().windows.empty()) << "nothing is gathered";
  // What the strategy handed to collectives is what the prediction sends.
  int64_t sent = 0, planned = 0;
  for (const GroupCall& call : s.data_calls) sent += call.bytes > 64 ? call.bytes : 0;
  for (const ReadyGradient& g : c.gradients) planned += g.bytes;
  EXPECT_EQ(sent, planned);
}

TEST(RankSchedule, ShardedWeightsAreGatheredAsTheStrategyDoes) {
  PlanRequest q = request();
  for (const Recompute& recompute : {Recompute::none, Recompute::block}) {
    q.recompute = recompute;
    RankOptions rank;
    rank.device = Device::meta();
    rank.world = 4;
    MemoryRequest r = one_rank(q.config(), Precision::fp32, 2);
    r.layout = layout_for(Precision::fp32, r.step, 4, true);
    r.strategy = "fsdp";
    const RankSchedule s = record_schedule(r, rank);
    const ScheduleTimes t = times_of(
        s, [](const TimedOp&) { return OpTime{.us = 1}; }, 4, [](std::string_view, int64_t) { return 0.0; });
    int64_t gathered = 0, scattered = 0, windows = 0, scatters = 0;
    for (const GroupCall& call : s.data_calls) {
      if (call.what == Collective::all_gather) gathered += 4 * call.bytes;
      if (call.what == Collective::reduce_scatter) scattered += call.bytes;
    }
    for (const GatherWindowTime& w : t.micro_steps.front().windows) {
      windows += w.bytes;
      scatters += w.scatter_bytes;
    }
    EXPECT_EQ(gathered, windows);
    EXPECT_EQ(scattered, scatters);
    // The windows and what is before them are the micro-step.
    double us = t.micro_steps.front().head;
    for (const GatherWindowTime& w : t.micro_steps.front().windows) us += w.compute;
    EXPECT_NEAR(us, t.micro_steps.front().busy.total(), 1e-9);
  }
}

// --- memory

TEST(PlanMemory, IsThatOfTheRanksToTheByte) {
  for (const int ranks : {1, 2, 4}) {
    for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
      PlanRequest q = request();
      q.precision = Precision::bf16;
      q.hardware.kind = DeviceType::cpu;
      RanksStudy study;
      study.size = q.model;
      study.precision = q.precision;
      study.context = q.context;
      study.device = Device::meta();
      Layout layout{strategy, ranks, 1, 1};
      const TimeModel time(q.hardware, DType::bf16);
      const PlanRow row = plan_layout(q, time, layout, ranks);
      StrategyOptions sharing;
      if (layout.strategy == "fsdp") sharing.prefetch = row.prefetch;
      const RanksTiming planned = plan_ranks(work_of(study, ranks, q.batch_per_device),
                                             strategy_maker(std::string(layout.strategy_name()), sharing));
      EXPECT_EQ(row.memory.peak_total, planned.memory.after_step.peak_total) << strategy << ranks;
      for (int tag = 0; tag < kTagCount; ++tag)
        EXPECT_EQ(row.memory.peak.values[static_cast<std::size_t>(tag)],
                  planned.memory.after_step.peak.values[static_cast<std::size_t>(tag)])
            << strategy << ranks << name_of(static_cast<Tag>(tag));
      EXPECT_STREQ(row.memory_by, "meta");
    }
  }
}

TEST(PlanMemory, OfTensorParallelRanksIsThePredictedRuns) {
  PlanRequest q = request();
  q.hardware.kind = DeviceType::cpu;
  const TimeModel time(q.hardware, DType::f32);
  for (const char* strategy : {"ddp", "zero2", "fsdp"}) {
    const PlanRow row = plan_layout(q, time, {strategy, 2, 2, 1}, 4);
    MemoryRequest r = one_rank(q.config(), Precision::fp32, 4);
    r.layout = layout_for(Precision::fp32, r.step, 2, std::string(strategy) == "fsdp");
    r.layout.sharded_grads = std::string(strategy) == "zero2";
    r.layout.tensor_ranks = 2;
    r.strategy = row.layout.strategy_name();
    r.sharing.prefetch = std::string(strategy) == "fsdp" ? row.prefetch : 1;
    RankOptions rank;
    rank.world = 4;
    rank.rank = 1;
    rank.threads = 1;
    EXPECT_EQ(row.memory.peak_total, predict_memory(r, rank).peak_total) << strategy;
  }
}

// The formulas that stand where there is no model to run, against models that there are. Padding is what a
// shard of each weight is rounded up to.
TEST(PlanMemory, FormulasOfTheStateAreTheMetaRuns) {
  PlanRequest q = request("tiny");
  q.hardware.kind = DeviceType::cpu;
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::pure_bf16}) {
    q.precision = precision;
    const TimeModel time(q.hardware, DType::f32);
    for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
      const Layout layout{strategy, 4, 1, 1};
      const MemoryStats meta = plan_layout(q, time, layout, 4).memory;
      const PerTag<std::size_t> formula = state_bytes(layout, policy_of(precision), q.parameters());
      for (const Tag tag : {Tag::param, Tag::grad, Tag::optim}) {
        const double of = static_cast<double>(formula[tag]);
        EXPECT_NEAR(static_cast<double>(meta.peak[tag]), of, 0.02 * of + 16384) << strategy << name_of(tag);
      }
      // ZeRO holds the low halves whole until the weights are loaded.
      EXPECT_GE(meta.peak[Tag::master] + 16384, formula[Tag::master]) << strategy;
    }
  }
}

TEST(PlanMemory, OfBlocksOfTwoLinears) {
  const PaperModel m{.d_model = 64, .d_ff = 256, .layers = 6};
  PaperStep step{.layout = {"fsdp", 4, 2, 1}, .policy = policy_of(Precision::fp32), .tokens = 32};
  const RankSchedule s = paper_schedule(m, step);
  const double parameters = 2.0 * 64 * 256 * 6;
  // 16 bytes a parameter over 8 devices.
  const std::size_t state = s.memory.peak[Tag::param] + s.memory.peak[Tag::grad] + s.memory.peak[Tag::optim];
  EXPECT_EQ(state, static_cast<std::size_t>(16 * parameters / 8));
  // The inputs of both linears of 6 blocks, the second cut in two, and a block at work.
  EXPECT_EQ(s.memory.peak[Tag::activation], 32u * (64 + 128) * 4 * 6 + 32u * (2 * 64 + 2 * 128) * 4);
  // 6 B D F a linear and step, forward and backward, two linears a block.
  double flops = 0;
  for (const TimedOp& op : s.ops)
    if (op.op == "linear") flops += op.cost.flops;
  EXPECT_DOUBLE_EQ(flops, 2 * 6.0 * 32 * 64 * 128 * 6);
  step.recompute = true;
  EXPECT_LT(paper_schedule(m, step).memory.peak[Tag::activation], s.memory.peak[Tag::activation]);
}

// --- time

TEST(Plan, OnLinksThatTakeNoTimeAllLayoutsShareTheCompute) {
  const PlanReport report = plan(request(), 4);
  const PlanRow& ddp = row_of(report, "ddp 4");
  double flops = 0;
  MemoryRequest r = one_rank(request().config(), Precision::fp32, 2);
  r.layout = layout_for(Precision::fp32, r.step, 4);
  r.strategy = "ddp:bucketed";
  RankOptions rank;
  rank.device = Device::meta(DeviceType::cpu);
  rank.world = 4;
  for (const TimedOp& op : record_schedule(r, rank).ops) flops += op.cost.flops;
  EXPECT_NEAR(ddp.seconds(), flops / kFlops, 1e-6 * ddp.seconds());
  EXPECT_EQ(ddp.bound(), "compute");
  EXPECT_NEAR(ddp.parts.total(), ddp.parts.compute, 1e-9 * ddp.seconds());
  // Tensor-parallel ranks repeat norms and sums of the residual stream: never quicker than data-parallel
  // ones, which are the first where they do not update less.
  for (const PlanRow& row : report.rows) EXPECT_NEAR(row.parts.tensor, 0, 1e-12) << row.layout.name();
  EXPECT_NEAR(report.mfu(ddp), report.model_flops / 4 / flops, 1e-6);
}

// Compute takes no time: a step is its communication. Gradients of fp32 all-reduced are 2 (N-1)/N of S, ZeRO
// sends S and gathers S, FSDP gathers twice and sends once.
TEST(Plan, WithoutComputeAStepIsItsCommunication) {
  PlanRequest q = request();
  q.hardware.flops = {{"fp32", 1e30}};
  q.link = LinkModel{0, 1e9};
  q.strategies = {"ddp", "zero1", "zero2", "fsdp"};
  q.tensor = {1};
  const PlanReport report = plan(q, 4);
  const double S = 4.0 * static_cast<double>(param_count(q.model));
  EXPECT_NEAR(row_of(report, "ddp 4").seconds(), 2 * 0.75 * S / 1e9, 0.01 * S / 1e9);
  EXPECT_NEAR(row_of(report, "zero1 4").seconds(), 2 * 0.75 * S / 1e9, 0.01 * S / 1e9);
  EXPECT_NEAR(row_of(report, "zero1 4").parts.gathers, 0.75 * S / 1e9, 0.01 * S / 1e9);
  EXPECT_NEAR(row_of(report, "zero2 4").parts.gradients, 0.75 * S / 1e9, 0.01 * S / 1e9);
  // Neighbouring uses share a gather: head and embedding are used once in forward and backward each, or less.
  const double fsdp = row_of(report, "fsdp 4").seconds();
  EXPECT_GT(fsdp, 2.4 * 0.75 * S / 1e9);
  EXPECT_LT(fsdp, 3.01 * 0.75 * S / 1e9);
  EXPECT_EQ(row_of(report, "ddp 4").bound(), "gradient communication");
  EXPECT_EQ(row_of(report, "fsdp 4").bound(), "weight gathers");
  EXPECT_EQ(report.rows.back().layout.name(), "fsdp 4") << "it sends most";
}

// 4 sums a layer of batch x context x width, one of the embedding and one behind the head, and the loss's two
// numbers a row.
TEST(Plan, TensorParallelSumsAreThoseOfTheModel) {
  PlanRequest q = request();
  q.hardware.flops = {{"fp32", 1e30}};
  q.link = LinkModel{0, 1e9};
  q.tensor = {2};
  q.strategies = {"tp"};
  const PlanReport report = plan(q, 2);
  ASSERT_EQ(report.rows.size(), 1u);
  const double x = 4.0 * 16 * 128 * 4;  // bytes: batch 4, ctx 16, width 128, fp32
  const double rings = 2 * 0.5 * x / 1e9;
  EXPECT_NEAR(report.rows[0].parts.tensor, (4 * 4 + 2) * rings, 0.5 * rings);
  EXPECT_EQ(report.rows[0].bound(), "tensor-parallel sums");
}

TEST(Plan, GradientSumsHideBehindBackward) {
  PlanRequest q = request();
  q.strategies = {"ddp"};
  q.tensor = {1};
  const double step = plan(q, 2).rows.front().seconds();
  const double S = 4.0 * static_cast<double>(param_count(q.model));
  q.link = LinkModel{0, 20 * S / step};  // a twentieth of a step for all of it
  const PlanRow row = plan(q, 2).rows.front();
  EXPECT_GT(row.communication, 0.04 * step);
  EXPECT_LT(row.seconds(), step + row.communication + 1e-9);
  q.micro_steps = 4;  // one sum a step, whatever its micro-steps
  EXPECT_NEAR(plan(q, 2).rows.front().communication, row.communication, 1e-9);
}

TEST(Plan, ZeroTwoSumsEveryMicroStep) {
  PlanRequest q = request();
  q.hardware.flops = {{"fp32", 1e30}};
  q.link = LinkModel{0, 1e9};
  q.tensor = {1};
  q.strategies = {"zero1", "zero2"};
  q.micro_steps = 5;
  const PlanReport report = plan(q, 4);
  EXPECT_NEAR(row_of(report, "zero2 4").parts.gradients, 5 * row_of(report, "zero1 4").parts.gradients,
              1e-6 * row_of(report, "zero2 4").seconds());
}

TEST(Plan, MemoryBoundOpsAreBoundByBandwidth) {
  PlanRequest q = request();
  q.hardware.bytes_per_s = 1e6;
  q.hardware.flops = {{"fp32", 1e30}};
  EXPECT_EQ(plan(q, 1).rows.front().bound(), "memory bandwidth");
}

TEST(Plan, WhatDoesNotFitComesLastTheSmallestFirst) {
  PlanRequest q = request();
  const PlanReport all = plan(q, 4);
  std::vector<std::size_t> peaks;
  for (const PlanRow& r : all.rows) peaks.push_back(r.memory.peak_total);
  std::sort(peaks.begin(), peaks.end());
  q.hardware.memory = static_cast<double>(peaks[peaks.size() / 2]);
  const PlanReport some = plan(q, 4);
  ASSERT_TRUE(some.any_fits());
  EXPECT_FALSE(some.rows.back().fits);
  EXPECT_EQ(some.rows.back().bound(), "memory");
  EXPECT_EQ(some.rows.back().memory.peak_total, peaks.back());
}

TEST(Plan, EqualTimesAreRankedTheSimplestFirst) {
  std::vector<PlanRow> rows(4);
  rows[0].layout = {"fsdp", 4, 1, 1};
  rows[1].layout = {"ddp", 2, 2, 1};
  rows[2].layout = {"ddp", 4, 1, 1};
  rows[3].layout = {"zero1", 4, 1, 1};
  rows[3].parts.compute = -1;
  rank_rows(rows);
  EXPECT_EQ(rows[0].layout.name(), "zero1 4");
  EXPECT_EQ(rows[1].layout.name(), "ddp 4");
  EXPECT_EQ(rows[2].layout.name(), "fsdp 4");
  EXPECT_EQ(rows[3].layout.name(), "ddp 2 x tp 2");
}

// --- a pipeline, on paper

TEST(PlanPipeline, TheBubbleIsItsShareOfTheTicks) {
  EXPECT_DOUBLE_EQ(bubble_share(1, 8), 0);
  EXPECT_DOUBLE_EQ(bubble_share(4, 8), 3.0 / 11);
  PlanRequest q = request();
  q.strategies = {"pp"};
  q.stages = {4};
  q.batch_per_device = 3;
  const PlanReport report = plan(q, 4);
  ASSERT_EQ(report.rows.size(), 1u);
  const PlanRow& row = report.rows[0];
  EXPECT_FALSE(row.layout.runs());
  EXPECT_DOUBLE_EQ(row.bubble_share, 3.0 / (12 + 3));  // 12 sequences through 4 stages
  // 15 ticks of which 3 are the bubble; the update is small here.
  EXPECT_NEAR(row.parts.bubble / (row.parts.bubble + row.parts.compute), 3.0 / 15, 0.02);
  EXPECT_STREQ(row.memory_by, "formula");
}

// --- what cannot be

TEST(PlanErrors, ABatchThatNoLayoutCanSplit) {
  PlanRequest q = request();
  q.total_batch = 3;
  q.tensor = {1};
  q.strategies = {"ddp", "fsdp"};
  const std::string said = KILN_ERROR_OF(plan(q, 4));
  EXPECT_NE(said.find("batch 3 does not divide among 4 data-parallel ranks"), std::string::npos) << said;
  EXPECT_NE(said.find("--batch 4"), std::string::npos) << said;
}

TEST(PlanErrors, OneThatSomeCanIsSaidOfTheOthers) {
  PlanRequest q = request();
  q.total_batch = 2;
  const PlanReport report = plan(q, 4);
  for (const PlanRow& r : report.rows) EXPECT_LE(r.layout.data, 2);
  ASSERT_FALSE(report.skipped.empty());
  EXPECT_EQ(report.skipped.front().name, "ddp 4");
}

TEST(PlanErrors, AModelTooLargeNamesTheLeastAndTheKnobs) {
  PlanRequest q = request();
  q.context = 256;
  q.batch_per_device = 8;
  q.hardware.memory = 8e6;
  const PlanReport report = plan(q, 2);
  ASSERT_FALSE(report.any_fits());
  const std::string said = KILN_ERROR_OF((refuse_too_large(report), 0));
  EXPECT_NE(said.find("micro does not fit on 2 devices of 7.63 MiB: the least is "), std::string::npos)
      << said;
  EXPECT_EQ(said.find(" with pp"), std::string::npos) << "a pipeline is on paper: " << said;
  EXPECT_NE(said.find("--recompute block takes"), std::string::npos) << said;
  EXPECT_NE(said.find("--devices 16 takes"), std::string::npos) << said;
}

TEST(PlanErrors, HardwareWithoutALinkNeedsOne) {
  PlanRequest q = request();
  q.link.reset();
  EXPECT_NE(KILN_ERROR_OF(plan(q, 2)).find("says nothing of a link between devices"), std::string::npos);
  EXPECT_EQ(plan(q, 1).rows.size(), 1u) << "one device needs none";
}

// --- the page

TEST(PlanPage, KeysOfItsDocument) {
  PlanRequest q = request();
  q.batch_per_device = 4;
  const PlanReport report = plan(q, 4);
  const Json page = Json::parse(written(plan_page(report, false), PageFormat::json));
  for (const char* key :
       {"command",     "size", "params",    "hw",         "device_bytes", "devices", "node",
        "batch",       "ctx",  "precision", "recompute",  "grad_accum",   "times",   "model_flops",
        "flops_per_s", "fits", "link",      "inter_link", "rows",         "skipped"})
    EXPECT_TRUE(page.contains(key)) << key;
  EXPECT_EQ(page.at("rows").size(), report.rows.size());
  for (const Json& row : page.at("rows")) {
    double parts = 0;
    for (const char* key : {"compute_ms", "memory_ms", "gaps_ms", "tensor_ms", "gradients_exposed_ms",
                            "gathers_exposed_ms", "bubble_ms", "scalars_ms"})
      parts += row.at(key).get<double>();
    EXPECT_NEAR(parts, row.at("step_ms").get<double>(), 1e-9 * parts);
    EXPECT_EQ(row.at("status").text(), "modelled");
    EXPECT_TRUE(row.contains("param_bytes"));
  }
  q.top = 2;
  EXPECT_EQ(plan_page(plan(q, 4), false).rows.size(), 2u);
}

}  // namespace
}  // namespace kiln
