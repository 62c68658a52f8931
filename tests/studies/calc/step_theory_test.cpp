#include "studies/calc/step_theory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "studies/calc/measured_step.h"
#include "studies/memory/memory_study.h"
#include "train/memory_prediction.h"

namespace kiln {
namespace {

StepTheoryRequest request(const char* size = "nano") {
  StepTheoryRequest q;
  q.model = NamedModel(find_model_size(size));
  q.batch = 2;
  q.context = 64;
  q.hardware.kind = DeviceType::cpu;
  return q;
}

TEST(StepTheory, ModelFlopsFollowTheFormula) {
  StepTheoryRequest q = request("small");
  q.batch = 4;
  q.context = 512;
  q.hardware = find_hardware("h200");
  // 6 x (parameters less the lookup table) + 6 x layers x width x context, a token.
  const double a_token =
      6.0 * (static_cast<double>(param_count(q.model)) - 10000.0 * 768) + 6.0 * 12 * 768 * 512;
  EXPECT_NEAR(step_theory(q).model_flops, a_token * 4 * 512, 1);
  q.convention = FlopsConvention::dense;
  EXPECT_NEAR(step_theory(q).model_flops, (a_token + 6.0 * 12 * 768 * 512) * 4 * 512, 1);
  q.mode = StepMode::forward;
  EXPECT_NEAR(step_theory(q).model_flops, (a_token + 6.0 * 12 * 768 * 512) * 4 * 512 / 3, 1);
}

TEST(StepTheory, OpsAddUpToAboutTheModelAndRecomputationIsApart) {
  StepTheoryRequest q = request();
  const StepTheory plain = step_theory(q);
  EXPECT_EQ(plain.recomputed(), 0);
  EXPECT_NEAR(plain.flops() / plain.model_flops, 1, 0.1);  // small: what is not matmul shows
  q.recompute = Recompute::block;
  const StepTheory again = step_theory(q);
  EXPECT_GT(again.recomputed(), 0);
  EXPECT_NEAR(again.flops() - again.recomputed(), plain.flops(), 1e-9 * plain.flops());
}

TEST(StepTheory, TheRooflineIsTheLargerOfEachOpsTwoTimes) {
  StepTheoryRequest q = request();
  q.hardware.name = "made up";
  q.hardware.kind = DeviceType::cpu;
  q.hardware.flops = {{"bf16", 1e9}};
  q.hardware.bytes_per_s = 1e30;  // nothing waits for memory
  const StepTheory compute = step_theory(q);
  EXPECT_NEAR(compute.roofline(), compute.flops() / 1e9, 1e-9 * compute.roofline());
  for (const TheoryOp& op : compute.ops) {
    if (op.cost.flops > 0) {
      EXPECT_STREQ(op.bound(), "compute") << op.op;
    }
  }
  q.launch = 1e-3;
  int calls = 0;
  for (const TheoryOp& op : compute.ops) calls += op.calls;
  EXPECT_NEAR(step_theory(q).roofline(), compute.roofline() + 1e-3 * calls, 1e-9);
  q.hardware.flops = {{"bf16", 1e30}};
  q.hardware.bytes_per_s = 1e9;
  q.launch = 0;
  const StepTheory memory = step_theory(q);
  double bytes = 0;
  for (const TheoryOp& op : memory.ops) bytes += op.cost.bytes;
  EXPECT_NEAR(memory.roofline(), bytes / 1e9, 1e-9 * memory.roofline());
}

TEST(MemoryTheory, IsWhatAStepTakesToTheByte) {
  StepTheoryRequest q = request();
  q.precision = Precision::fp32;
  const MemoryTheory theory = memory_theory(q);
  RankOptions cpu = q.rank();
  cpu.device = Device();
  const MemoryTracedStep run = trace_step(q.spec(), cpu);
  EXPECT_EQ(theory.peaks.peak_total, run.stats.peak_total);
  EXPECT_EQ(theory.state_bytes, 16);
}

TEST(MemoryTheory, ShardingShrinksARank) {
  StepTheoryRequest q = request("micro");
  q.precision = Precision::fp32;
  q.ranks = 4;
  q.strategy = "ddp:flat";
  const std::size_t whole = memory_theory(q).peaks.peak_total;
  q.strategy = "zero1";
  const std::size_t zero = memory_theory(q).peaks.peak[Tag::optim];
  q.strategy = "fsdp";
  EXPECT_LT(memory_theory(q).peaks.peak_total, whole);
  EXPECT_NEAR(static_cast<double>(zero), 8.0 * static_cast<double>(param_count(q.model)) / 4, 4096);
}

// Only the row of this very step, on this kind of device, that passed its gate; the newest of those.
TEST(StepTheory, TheStoredStepStandsBesideIt) {
  const StepTheoryRequest q = request();
  Json row = {{"command", "bench step"}, {"status", "ok"},      {"gate", "passed"},    {"size", "nano"},
              {"dtype", "bf16"},         {"batch", 2},          {"ctx", 64},           {"mode", "full"},
              {"preset", "optimized"},   {"recompute", "none"}, {"device", "cpu"},     {"p50_ms", 12.5},
              {"peak_bytes", 1 << 20},   {"variants", ""},      {"schema", kRowSchema}};
  const auto measured = [&](const std::vector<Json>& rows) {
    StudyPage page;
    add_measured_step(page, q, rows);
    return page;
  };
  const StudyPage none = measured({});
  EXPECT_TRUE(none.json.at("measured_ms").is_null());
  EXPECT_TRUE(none.notes.empty());
  Json older = row;
  older["p50_ms"] = 99;
  const StudyPage page = measured({older, row});
  EXPECT_EQ(page.json.at("measured_ms").get<double>(), 12.5);
  ASSERT_EQ(page.notes.size(), 1u);
  EXPECT_NE(page.notes[0].find("12.5 ms, peak 1.00 MiB"), std::string::npos) << page.notes[0];
  for (const auto& [key, other] :
       std::initializer_list<std::pair<const char*, Json>>{{"size", "micro"},
                                                           {"dtype", "fp32"},
                                                           {"batch", 4},
                                                           {"ctx", 32},
                                                           {"mode", "forward"},
                                                           {"preset", "baseline"},
                                                           {"recompute", "block"},
                                                           {"device", "cuda:0"},
                                                           {"gate", "failed"},
                                                           {"micro_steps", 2},
                                                           {"variants", "attention=naive"}}) {
    Json foreign = row;
    foreign[key] = other;
    EXPECT_TRUE(measured({foreign}).json.at("measured_ms").is_null()) << key;
  }
}

TEST(CheckpointTheory, NamesTheLeastMemory) {
  StepTheoryRequest q = request("tiny");
  const StudyPage page = checkpoint_page(q, false);
  std::size_t least = SIZE_MAX;
  std::string name;
  for (const Json& row : page.rows) {
    const auto bytes = row.at("predicted_peak_bytes").get<std::size_t>();
    const std::string policy = row.at("recompute").text();
    if (policy != "none" && policy != "nested" && bytes < least) {
      least = bytes;
      name = policy;
    }
  }
  EXPECT_EQ(page.json.at("best").text(), name);
  EXPECT_EQ(page.rows.front().at("more_flops").get<double>(), 0);
  EXPECT_GT(page.rows[1].at("more_flops").get<double>(), 0.1);
}

}  // namespace
}  // namespace kiln
