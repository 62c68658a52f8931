#include "studies/step/step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/json.h"
#include "studies/step/render.h"
#include "train/memory_prediction.h"

namespace kiln::cli {
namespace {

std::string step_text(const BenchStepReport& r) { return written(step_page(r), PageFormat::text); }
std::string step_json(const BenchStepReport& r) { return written(step_page(r), PageFormat::json); }
std::string step_latex(const BenchStepReport& r) { return written(step_page(r), PageFormat::latex); }
std::string step_markdown(const BenchStepReport& r) { return written(step_page(r), PageFormat::markdown); }

ModelSize little(int64_t vocab = 61) {
  ModelSize s = find_model_size("nano");
  s.vocab = vocab;
  return s;
}

BenchStepRequest little_request() {
  BenchStepRequest r;
  r.sizes = {little()};
  r.contexts = {11};
  r.precisions = {Precision::fp32};
  r.presets = {"optimized"};
  r.modes = {StepMode::full};
  r.batch = 2;
  r.warmups = 1;
  r.steps = 3;
  r.device = Device::cpu();
  r.threads = 1;
  r.begun = std::chrono::steady_clock::now();
  return r;
}

BenchStepReport run(const BenchStepRequest& r) {
  check_bench_step(r);
  return bench_step(r, [](const std::string&) {});
}

TEST(BenchStep, RowsOfOneModelAreTimedByTurns) {
  BenchStepRequest r = little_request();
  r.presets = {"baseline", "optimized"};
  r.contexts = {11, 13};
  r.steps = 7;  // no multiple of the turns
  const BenchStepReport report = run(r);
  ASSERT_EQ(report.rows.size(), 4u);
  for (const StepRow& row : report.rows) {
    EXPECT_TRUE(row.by_turns) << row.variant_set();
    EXPECT_EQ(row.timing.samples.size(), 7u);
    EXPECT_EQ(row.timing.warmups, 1);
    EXPECT_EQ(row.measured.peak_total, row.predicted.peak_total) << "the other model's memory is not its own";
    EXPECT_GT(row.first, 0);
    ASSERT_TRUE(row.phases);
    EXPECT_EQ(row.phases->host.samples.size(), 7u);
  }
  EXPECT_NEAR(report.rows[0].last_loss, report.rows[1].last_loss, 1e-3) << "the same steps of the same model";
  r.presets = {"optimized"};
  r.contexts = {11};
  EXPECT_FALSE(run(r).rows.front().by_turns) << "there is nobody to take turns with";
}

TEST(BenchStep, FiguresFollowFromEachOther) {
  BenchStepRequest r = little_request();
  r.split = true;
  const BenchStepReport report = run(r);
  ASSERT_TRUE(report.any_timed());
  EXPECT_EQ(report.first_not_timed(), nullptr);
  const Json page = Json::parse(step_json(report));
  const Json& row = page.at("rows").at(0);
  EXPECT_EQ(row.at("size"), "nano");
  EXPECT_EQ(row.at("status"), "ok");
  EXPECT_EQ(row.at("gate"), "passed");
  EXPECT_EQ(row.at("graph"), "off");
  EXPECT_EQ(row.at("samples"), 3);
  EXPECT_EQ(row.at("warmups"), 1);
  EXPECT_EQ(row.at("vocab"), 61);
  const double p50 = row.at("p50_ms").get<double>();
  EXPECT_GT(p50, 0);
  EXPECT_NEAR(row.at("tokens_per_s").get<double>() * p50 / 1e3, 2 * 11, 1e-6);
  // 6 x weights that are multiplied + 6 x layers x d_model x context, a token.
  const double weights = 2 * (4 * 64 * 64 + 3 * 64 * 192 + 2 * 64) + 64 + 61 * 64;
  EXPECT_NEAR(row.at("tflops").get<double>() * p50 * 1e9, (6 * weights + 6.0 * 2 * 64 * 11) * 22, 1);
  EXPECT_GE(row.at("first_step_ms"), row.at("first_eager_step_ms"));
  EXPECT_GT(row.at("first_eager_step_ms").get<double>(), 0);
  EXPECT_GT(row.at("roofline_ms").get<double>(), 0);
  EXPECT_NEAR(row.at("first_loss").get<double>(), std::log(61), 1.5);
  EXPECT_LT(row.at("last_loss").get<double>(), row.at("first_loss").get<double>() + 0.5);

  const Json& split = row.at("split");
  double classes = 0, ops = 0, rooflines = 0;
  for (const auto& [name, c] : split.at("classes").items()) {
    classes += c.at("ms").get<double>();
    rooflines += c.at("own_roofline_ms").get<double>();
    EXPECT_GT(c.at("calls"), 0) << name;
    EXPECT_GE(c.at("own_roofline_ms"), 0) << name;
  }
  for (const Json& op : split.at("ops")) ops += op.at("ms").get<double>();
  EXPECT_NEAR(classes, split.at("sum_ms").get<double>(), 1e-9);
  EXPECT_NEAR(ops, classes, 1e-9);
  EXPECT_NEAR(split.at("gaps_ms").get<double>(), p50 - classes, 1e-9);
  for (const char* part : {"gemm", "attention", "pointwise", "adamw", "scalars"})
    EXPECT_TRUE(split.at("classes").contains(part)) << part;
  EXPECT_NEAR(rooflines, row.at("own_roofline_ms").get<double>(), 1e-9);
  const std::string text = step_text(report);
  EXPECT_NE(text.find("where the milliseconds go"), std::string::npos);
  EXPECT_NE(text.find("\nroofline: the optimized preset's ops  "), std::string::npos) << text;
  BenchStepReport slower = report;
  for (TimedOp& op : slower.rows[0].split->ops) op.ms *= 2;
  EXPECT_NE(step_text(slower), text) << "the split follows its ops";

  const Json line = Json::parse(step_result_lines(report).at(0));
  for (const char* key : {"command",
                          "size",
                          "variant_set",
                          "device",
                          "dtype",
                          "mean_ms",
                          "p50_ms",
                          "std_ms",
                          "tokens_per_s",
                          "tflops",
                          "peak_bytes",
                          "peak_by_tag",
                          "predicted_peak_bytes",
                          "roofline_ms",
                          "first_step_ms",
                          "raw_samples",
                          "build_id",
                          "host",
                          "time",
                          "gate",
                          "ops"})
    EXPECT_TRUE(line.contains(key)) << key;
  EXPECT_EQ(line.at("raw_samples").size(), 3U);
}

TEST(BenchStep, PhasesOfAModeAreThoseItHas) {
  BenchStepRequest r = little_request();
  r.modes = {StepMode::forward, StepMode::forward_backward, StepMode::full};
  const BenchStepReport report = run(r);
  const Json rows = Json::parse(step_json(report)).at("rows");
  ASSERT_EQ(rows.size(), 3U);
  const std::vector<std::string> names = {"forward", "backward", "optimizer"};
  for (std::size_t i = 0; i < 3; ++i) {
    double sum = 0;
    for (std::size_t p = 0; p < 3; ++p) {
      EXPECT_EQ(rows[i].contains(names[p] + "_ms"), p <= i) << i << names[p];
      EXPECT_EQ(rows[i].at("phases").contains(names[p]), p <= i);
      if (p > i) continue;
      EXPECT_EQ(rows[i].at("phases").at(names[p]).at("samples"), 3);
      sum += rows[i].at("phases").at(names[p]).at("mean_ms").get<double>();
    }
    // Marks stand inside the host's clock, and nothing is between phases.
    EXPECT_LE(sum, rows[i].at("phases").at("host").at("mean_ms").get<double>() * (1 + 1e-9));
    EXPECT_TRUE(rows[i].at("ci95_low_ms").is_null()) << "of three samples there is no interval";
    EXPECT_TRUE(rows[i].at("ci95_high_ms").is_null());
  }
  EXPECT_NE(step_text(report).find("optimizer"), std::string::npos);
  EXPECT_NE(step_latex(report).find("\\begin{tabular}"), std::string::npos);
}

TEST(BenchStep, TheFloorIsTheSameForEveryWayOfDoingIt) {
  BenchStepRequest r = little_request();
  r.presets = {"baseline", "optimized"};
  r.recompute = Recompute::block;
  const BenchStepReport report = run(r);
  for (const StepRow& row : report.rows) {
    EXPECT_GT(row.own_roofline_ms(), row.roofline_ms()) << row.variant_set();  // both recompute
    EXPECT_NEAR(row.roofline_ms(), report.rows[0].roofline_ms(), 1e-9);
  }
  EXPECT_GT(report.rows[0].own_roofline_ms(), report.rows[1].own_roofline_ms());
  const Json page = Json::parse(step_json(report));
  ASSERT_EQ(page.at("pairs").size(), 1U);
  EXPECT_EQ(page.at("pairs").at(0).at("baseline"), "baseline");
  EXPECT_NEAR(page.at("pairs").at(0).at("own_roofline_speedup").get<double>(),
              report.rows[0].own_roofline_ms() / report.rows[1].own_roofline_ms(), 1e-9);
}

TEST(BenchStep, StoppedItReportsTheRowsThatAreDone) {
  BenchStepRequest r = little_request();
  r.contexts = {8, 16, 24};
  int begun = 0;
  r.stop = [&] { return begun > 2; };  // within the third: its gate and its steps ask
  const std::string row = r.sizes.front().name + " ";
  const BenchStepReport report =
      bench_step(r, [&](const std::string& text) { begun += text.starts_with(row) ? 1 : 0; });
  EXPECT_TRUE(report.stopped);
  ASSERT_EQ(report.rows.size(), 2U);
  EXPECT_EQ(step_result_lines(report).size(), 2U);
}

// What scripts rely on is in the manual.
TEST(BenchStep, EveryKeyIsDocumented) {
  BenchStepRequest r = little_request();
  r.precisions = {Precision::fp32, Precision::bf16};
  r.contexts = {8, 16};
  const Json page = Json::parse(step_json(run(r)));
  std::ifstream file(KILN_TESTS_FOLDER "/../docs/measuring.md");
  const std::string manual{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(manual.empty());
  auto check = [&](const Json& object) {
    for (const auto& [key, value] : object.items())
      EXPECT_NE(manual.find("`" + key + "`"), std::string::npos) << key;
  };
  check(page);
  check(page.at("rows").at(0));
  check(page.at("rows").at(0).at("phases"));
  check(page.at("pairs").at(0));
  check(page.at("scaling").at(0));
}

TEST(BenchStep, ThePeakIsTheOneMetaPredicted) {
  BenchStepRequest r = little_request();
  r.modes = {StepMode::forward, StepMode::forward_backward, StepMode::full};
  r.precisions = {Precision::fp32, Precision::bf16};
  r.micro_steps = 2;
  const BenchStepReport report = run(r);
  ASSERT_EQ(report.rows.size(), 6U);
  for (const StepRow& row : report.rows) {
    ASSERT_TRUE(row.timed()) << row.reason;
    EXPECT_EQ(row.measured.peak_total, row.predicted.peak_total) << row.variant_set();
    EXPECT_TRUE(row.measured.peak == row.predicted.peak) << row.variant_set();
  }
  // No gradient, no update: less is kept and less is computed.
  EXPECT_EQ(report.rows[0].measured.peak[Tag::optim], 0U);
  EXPECT_EQ(report.rows[1].measured.peak[Tag::optim], 0U);
  EXPECT_GT(report.rows[2].measured.peak[Tag::optim], 0U);
  EXPECT_NEAR(report.rows[0].flops * 3, report.rows[1].flops, 1);
  EXPECT_EQ(report.rows[1].flops, report.rows[2].flops);
  EXPECT_LT(report.rows[0].planned.size(), report.rows[1].planned.size());
  EXPECT_LT(report.rows[1].planned.size(), report.rows[2].planned.size());
}

// The full step on meta is the prediction `kiln train` prints.
TEST(BenchStep, PlansAsTrainDoes) {
  StepSpec spec;
  spec.model = config_of(little());
  spec.step.batch = 3;
  spec.step.context = 7;
  RankOptions rank;
  rank.threads = 1;
  const MemoryStats other =
      predict_memory({spec.model, layout_for(spec.precision, spec.step), spec.step, false}, rank);
  EXPECT_EQ(plan_step(spec, rank).memory.peak_total, other.peak_total);
}

TEST(BenchStep, TheBaselineIsAnotherSetOfVariants) {
  BenchStepRequest r = little_request();
  r.presets = {"baseline", "optimized"};
  r.variants = "swiglu=naive";
  r.recompute = Recompute::block;
  r.clip = 1;
  const BenchStepReport report = run(r);
  ASSERT_EQ(report.rows.size(), 2U);
  EXPECT_EQ(report.rows[0].variant_set(),
            "baseline,swiglu=naive,dtype=fp32,graph=off,recompute=block,micro_steps=1,clip=1,qkv=split,"
            "gate_up=split");
  EXPECT_NE(report.rows[0].ops, report.rows[1].ops);
  const Json rows = Json::parse(step_json(report)).at("rows");
  EXPECT_EQ(rows.at(1).at("ops").at("swiglu"), "naive");
  EXPECT_EQ(rows.at(1).at("variant_set"), report.rows[1].variant_set());
}

TEST(BenchStep, LongerContextsCostMore) {
  BenchStepRequest r = little_request();
  r.contexts = {8, 32};
  const BenchStepReport report = run(r);
  ASSERT_EQ(report.rows.size(), 2U);
  EXPECT_GT(report.rows[1].flops, 4 * report.rows[0].flops);
  EXPECT_GT(report.rows[1].roofline_ms(), report.rows[0].roofline_ms());
  EXPECT_GT(report.rows[1].measured.peak_total, report.rows[0].measured.peak_total);
}

TEST(BenchStep, TooLittleMemoryIsARowWithWhatWasNeeded) {
  BenchStepRequest r = little_request();
  r.batch = 4096;  // far more than any machine this runs on has
  r.contexts = {4096};
  r.precisions = {Precision::bf16};
  r.sizes = {find_model_size("10b")};
  const BenchStepReport report = run(r);
  ASSERT_FALSE(report.any_timed());
  const Json row = Json::parse(step_json(report)).at("not_timed").at(0);
  EXPECT_EQ(row.at("status"), "oom");
  EXPECT_GT(row.at("predicted_peak_bytes"), row.at("available_bytes"));
  EXPECT_GT(row.at("predicted_peak_by_tag").at("activation"), 0);
  EXPECT_LT(row.at("largest_batch"), 4096);
  EXPECT_NE(step_text(report).find("needed: param"), std::string::npos) << step_text(report);
  EXPECT_EQ(step_result_lines(report).size(), 1U);
}

TEST(BenchStep, TheLargestBatchIsTheLastThatFits) {
  StepSpec spec;
  spec.model = config_of(little());
  spec.step.batch = 40;
  spec.step.context = 16;
  RankOptions rank;
  rank.threads = 1;
  auto peak = [&](int64_t batch) {
    StepSpec s = spec;
    s.step.batch = batch;
    return plan_step(s, rank).memory.peak_total;
  };
  const int64_t found = largest_batch(spec, rank, peak(13));
  EXPECT_GE(found, 13);
  EXPECT_LE(peak(found), peak(13));
  EXPECT_GT(peak(found + 1), peak(13));
  EXPECT_EQ(largest_batch(spec, rank, 1000), 0);
}

TEST(BenchStep, AFailedRowIsShownAndNotStored) {
  BenchStepReport report;
  StepRow row;
  row.size = little();
  row.preset = "optimized";
  row.set(RowStatus::failed, "the loss is nan");
  report.rows = {row};
  EXPECT_TRUE(step_result_lines(report).empty());
  EXPECT_NE(step_text(report).find("the loss is nan"), std::string::npos);
  EXPECT_EQ(Json::parse(step_json(report)).at("not_timed").at(0).at("status"), "failed");
}

// A split made of kernels, as a GPU gives one.
TEST(BenchStep, KernelsAreShownByPartAndByName) {
  BenchStepReport report = run(little_request());
  StepRow& row = report.rows.at(0);
  ASSERT_TRUE(row.timed()) << row.reason;
  Trace step;
  step.ops.resize(1);
  step.ops[0].op = "linear";
  step.end_us = 1000;
  step.spans = {{TraceLane::gpu, KernelGroup::matmul, "nvjet_hsh_128x64", 0, 0, 600},
                {TraceLane::gpu, KernelGroup::matmul, "nvjet_hsh_128x64", 0, 600, 700},
                {TraceLane::copy, KernelGroup::copy, "memcpy", -1, 750, 900}};
  row.split = StepSplit{{}, split_of({step, step}), 0.75};
  report.kernels = 1;
  const std::string text = step_text(report);
  EXPECT_NE(text.find("\ntraced step "), std::string::npos) << text;
  EXPECT_NE(text.find("\nnvjet_hsh_128x64  gemm      2  0.700      350"), std::string::npos) << text;
  EXPECT_EQ(text.find("\nmemcpy"), std::string::npos) << text;  // one kernel was requested
  const std::string page = step_markdown(report);
  EXPECT_NE(page.find("| gemm | 2 | 0.700 |"), std::string::npos) << page;
  EXPECT_NE(page.find("| nvjet_hsh_128x64 | gemm | 2 | 0.700 | 350 |"), std::string::npos) << page;
  const Json split = Json::parse(step_json(report)).at("rows").at(0).at("split");
  EXPECT_EQ(split.at("by"), "kernels");
  EXPECT_EQ(split.at("steps"), 2);
  EXPECT_EQ(split.at("attributed"), 0.75);
  EXPECT_NEAR(split.at("classes").at("copies").at("ms").get<double>(), 0.15, 1e-9);
  EXPECT_NEAR(split.at("gaps_ms").get<double>(), 0.15, 1e-9);
  EXPECT_NEAR(split.at("traced_step_ms").get<double>(), 1, 1e-9);
  EXPECT_GT(split.at("classes").at("gemm").at("own_roofline_ms").get<double>(), 0);
  EXPECT_EQ(split.at("kernels").size(), 2U);
  EXPECT_NEAR(split.at("kernels").at(0).at("mean_us").get<double>(), 350, 1e-6);
}

TEST(BenchStep, RefusesWhatCannotBe) {
  BenchStepRequest r = little_request();
  r.device = Device::meta();
  EXPECT_THROW(check_bench_step(r), Error);
  r = little_request();
  r.graph = GraphChoice::on;
  try {
    check_bench_step(r);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unavailable);
  }
  r = little_request();
  r.split = true;
  r.kernels = 5;
  EXPECT_THROW(check_bench_step(r), Error);
  r = little_request();
  r.variants = "swiglu=fuse";
  EXPECT_THROW(check_bench_step(r), Error);
}

}  // namespace
}  // namespace kiln::cli
