// `kiln ablate` on a model of nothing, and `kiln report` on what it stored.
#include "studies/ablation/ablation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/json.h"
#include "kiln/command_line.h"
#include "rows/result_log.h"
#include "studies/ablation/ablation_tables.h"
#include "studies/ablation/render.h"
#include "studies/step/step.h"
#include "support/has.h"
#include "support/said.h"
#include "support/temp_folder.h"

namespace kiln::cli {
namespace {

AblateRequest little_request() {
  AblateRequest r;
  r.size = find_model_size("nano");
  r.batch = 2;
  r.context = 24;
  r.warmups = 1;
  r.steps = 4;
  r.gate_steps = 2;
  r.only = {"fused_rope", "bf16", "cuda_graph"};
  r.device = Device::cpu();
  r.threads = 1;
  return r;
}

struct Done {
  AblateReport report;
  std::vector<Json> stored;
};

Done run(AblateRequest r, const std::vector<Json>& before = {}, int asked_after_a_row = 0) {
  Done d;
  int asked = 0;
  if (asked_after_a_row > 0)
    r.stop = [&d, &asked, asked_after_a_row] { return !d.stored.empty() && ++asked > asked_after_a_row; };
  check_ablate(r);
  d.report = ablate(
      r, before, [](const std::string&) {},
      [&](const std::string& line) { d.stored.push_back(Json::parse(line)); });
  return d;
}

TEST(Ablate, ThePlanIsOneByOneThenAddedUp) {
  const std::vector<std::string_view> only = {"fused_rope", "cuda_graph", "bf16"};
  const std::vector<PlannedRow> plan = ablation_plan(only, Device::cpu());
  ASSERT_EQ(plan.size(), 11U);
  EXPECT_EQ(plan.front().group, "baseline");
  EXPECT_EQ(plan[3].on, std::vector<std::string_view>{"bf16"});
  EXPECT_FALSE(plan[2].cannot.empty());
  EXPECT_EQ(plan[6].group, "added");
  EXPECT_EQ(plan[6].name, "bf16");
  EXPECT_EQ(plan[9].group, "without");
  EXPECT_EQ(plan[9].name, "bf16");
  EXPECT_EQ(plan.back().group, "again");
  EXPECT_EQ(ablation_plan({"bf16"}, Device::cpu()).size(), 3U) << "one alone adds up to itself";
  EXPECT_TRUE(ablation_plan(only, Device::cuda())[2].cannot.empty());
}

// What a GPU would run is planned without one, so every set of switches must have variants there.
TEST(Ablate, EveryRowCanBePlannedForAGpu) {
  StepSpec shape;
  shape.model = config_of(find_model_size("small"));
  shape.step.batch = 4;
  shape.step.context = 512;
  std::vector<std::string_view> on;
  const auto planned = [&](const std::vector<std::string_view>& switches) {
    const AblationSetup setup = ablation_setup(shape, switches, Device::cuda());
    RankOptions rank;
    rank.device = Device::cuda();
    rank.variants = setup.variants.ops;
    return plan_step(setup.spec, rank);
  };
  const StepPlan baseline = planned({});
  for (const AblationSwitch& s : ablation_switches()) {
    if (!why_not_on(s, Device::cuda()).empty()) continue;
    EXPECT_FALSE(planned({s.name}).ops.empty()) << s.name;
    on.push_back(s.name);
    EXPECT_FALSE(planned(on).ops.empty()) << s.name;
  }
  EXPECT_LT(planned(on).memory.peak_total, baseline.memory.peak_total / 2);
}

TEST(Ablate, RowsAreJudgedTimedAndStored) {
  const Done d = run(little_request());
  ASSERT_EQ(d.report.rows.size(), 10U);
  EXPECT_EQ(d.stored.size(), 10U);
  EXPECT_FALSE(d.report.stopped());
  const Json page = ablate_page(d.report).json;
  EXPECT_EQ(page.at("rows").size(), 8U);
  EXPECT_EQ(page.at("not_timed").size(), 2U);
  EXPECT_EQ(page.at("speedups").size(), 8U);
  for (const Json& row : page.at("rows")) {
    for (const char* key : {"command",      "study",
                            "group",        "switch",
                            "switches",     "size",
                            "device",       "dtype",
                            "batch",        "ctx",
                            "vocab",        "ranks",
                            "link",         "variant_set",
                            "ops",          "gate_steps",
                            "gate_errors",  "gate_tolerances",
                            "warmups",      "samples",
                            "mean_ms",      "std_ms",
                            "p50_ms",       "p95_ms",
                            "min_ms",       "ci95_low_ms",
                            "verdict",      "raw_samples",
                            "tokens_per_s", "flops",
                            "bytes",        "own_roofline_ms",
                            "roofline_ms",  "peak_by_tag",
                            "floor_bytes",  "build_id",
                            "host",         "time"})
      EXPECT_TRUE(row.contains(key)) << key;
    EXPECT_EQ(row.at("gate"), "passed");
    EXPECT_EQ(row.at("peak_bytes"), row.at("predicted_peak_bytes")) << row.at("switches");
    EXPECT_LE(row.at("roofline_ms"), row.at("own_roofline_ms"));
    EXPECT_EQ(row.contains("baseline_samples"), row.at("group") != "baseline");
  }
  EXPECT_EQ(d.stored[1].at("ops").at("rope"), "fused");
  EXPECT_EQ(d.stored[0].at("ops").at("rope"), "naive");
  EXPECT_EQ(d.stored[2].at("dtype"), "bf16");
  EXPECT_GT(d.stored[2].at("gate_errors").at("logits"), d.stored[1].at("gate_errors").at("logits"));
  EXPECT_EQ(d.stored[3].at("status"), "unavailable");
  EXPECT_EQ(d.stored[5].at("switches"), (Json{"fused_rope", "bf16"}));
  EXPECT_EQ(d.stored[6].at("reason"), d.stored[3].at("reason"));
  EXPECT_TRUE(has(d.stored[3].at("reason").text(), "cannot capture"));
  EXPECT_FALSE(d.stored[3].contains("p50_ms"));
  EXPECT_TRUE(d.stored[3].contains("predicted_peak_bytes"));
  for (const char* key : {"predicted_peak_bytes", "predicted_peak_by_tag", "floor_bytes"})
    EXPECT_FALSE(d.stored[6].contains(key)) << "nothing was planned with the others on: " << key;
  EXPECT_EQ(d.stored[7].at("group"), "without");
  EXPECT_EQ(d.stored[7].at("switches"), Json{"bf16"}) << "all that could be added, but for fused_rope";
  const std::string text = written(ablate_page(d.report), PageFormat::text);
  EXPECT_TRUE(has(text, "\n+bf16 "));
  EXPECT_TRUE(has(text, "taken away from all combined") && has(text, "\n-fused_rope ")) << text;
  EXPECT_TRUE(has(text, "cuda_graph: unavailable: cpu cannot capture a step"));
  for (const PageFormat f : {PageFormat::markdown, PageFormat::latex, PageFormat::csv})
    EXPECT_TRUE(
        has(written(ablate_page(d.report), f), f == PageFormat::latex ? "fused\\_rope" : "fused_rope"));
}

TEST(Ablate, AToleranceThatNothingPassesLeavesNoSpeedFigure) {
  AblateRequest r = little_request();
  r.only = {"bf16", "prefetch"};
  r.tolerance = 1e-6;
  const Done d = run(r);
  const Json& bf16 = d.stored[1];
  EXPECT_EQ(bf16.at("gate"), "failed");
  EXPECT_TRUE(has(bf16.at("reason").text(), "logits are off by"));
  for (const char* key : {"p50_ms", "mean_ms", "tokens_per_s", "peak_bytes"})
    EXPECT_FALSE(bf16.contains(key)) << key;
  EXPECT_TRUE(bf16.at("raw_samples").empty());
  EXPECT_EQ(d.stored[2].at("gate"), "passed") << "the same to the bit passes at any tolerance";
  EXPECT_EQ(d.stored[3].at("gate"), "failed");
  EXPECT_EQ(d.stored[4].at("switches"), Json{"prefetch"}) << "what failed is not added to the others";
  EXPECT_EQ(d.stored[4].at("gate"), "passed");
  const std::string text = written(ablate_page(d.report), PageFormat::text);
  EXPECT_TRUE(has(text, "bf16: gate failed: logits are off by"));
  EXPECT_EQ(ablate_page(d.report).json.at("not_timed").size(), 2U);
}

TEST(Ablate, StoppedItKeepsItsRowsAndResumes) {
  AblateRequest r = little_request();
  const Done first = run(r, {}, 3);  // within the second row: rows, checks and steps ask
  ASSERT_GT(first.stored.size(), 0U);
  ASSERT_LT(first.stored.size(), 10U);
  EXPECT_TRUE(first.report.stopped());
  EXPECT_TRUE(has(written(ablate_page(first.report), PageFormat::text), "the same command resumes there"));
  const Done second = run(r, first.stored);
  EXPECT_EQ(second.stored.size(), 10U - first.stored.size());
  EXPECT_EQ(second.report.rows.front(), first.stored.front());
  // One set of ceilings for all rows: the same step has exactly the same roofline.
  EXPECT_EQ(ablation_lines(second.report.rows).back().own_roofline, 1.0);
  for (const Json& row : second.report.rows) EXPECT_EQ(row.at("ceilings"), first.stored[0].at("ceilings"));
  EXPECT_TRUE(has(written(ablate_page(first.report), PageFormat::text), "; ceilings measured here: copy"));
  EXPECT_TRUE(has(written(ablate_page(second.report), PageFormat::text),
                  "; ceilings stored with the baseline's row: copy"));
  EXPECT_TRUE(has(second.report.notes.at(0), "of 10 rows were measured before"));
  std::vector<Json> all = first.stored;
  all.insert(all.end(), second.stored.begin(), second.stored.end());
  EXPECT_EQ(run(r, all).stored.size(), 0U);
  AblateRequest other = r;
  other.context = 16;
  other.only = {"bf16"};
  EXPECT_EQ(run(other, all).stored.size(), 3U) << "another study's rows are none of its own";
  r.fresh = true;
  r.only = {"bf16"};
  EXPECT_EQ(run(r, all).stored.size(), 3U);
  all[1]["gate"] = "failed";
  r = little_request();
  EXPECT_EQ(run(r, all).stored.size(), 2U) << "a failure is tried again, and is the first that is added";
}

TEST(Ablate, RowsPredictedByOtherCeilingsAreMeasuredAgain) {
  AblateRequest r = little_request();
  r.only = {"fused_rope"};
  std::vector<Json> all = run(r).stored;
  all[1]["ceilings"]["copy_bytes_per_s"] = 1e9;
  EXPECT_EQ(run(r, all).stored.size(), 1U);
  all[0].erase("ceilings");
  EXPECT_EQ(run(r, all).stored.size(), 3U) << "a baseline without them gives none to the others";
}

TEST(Ablate, AnAddedRowThatIsNotAddedIsNoOldOne) {
  const AblateRequest r = little_request();
  std::vector<Json> all = run(r).stored;
  Json old = all[5];  // from a time when it could be
  old["switch"] = "cuda_graph";
  old["switches"] = {"fused_rope", "bf16", "cuda_graph"};
  all[6] = old;
  const Done d = run(r, all);
  EXPECT_EQ(d.report.rows[6].at("status"), "unavailable");
  ASSERT_EQ(d.stored.size(), 1U);
  all.push_back(d.stored[0]);
  EXPECT_EQ(run(r, all).stored.size(), 0U) << "and is stored once";
}

// Only a study without its first row is none.
TEST(Ablate, AFailureInTheLastRowLeavesTheOthers) {
  AblateRequest r = little_request();
  r.only = {"fused_rope"};
  std::string now;
  int asked = 0;  // before the row and before each of its steps
  r.stop = [&]() -> bool {
    if (now.find("again") != std::string::npos && ++asked > 2) throw Error("the device is gone");
    return false;
  };
  std::vector<Json> stored;
  const AblateReport report = ablate(
      r, {}, [&](const std::string& text) { now = text; },
      [&](const std::string& line) { stored.push_back(Json::parse(line)); });
  ASSERT_EQ(report.rows.size(), 3U);
  EXPECT_EQ(stored.size(), 3U);
  EXPECT_EQ(report.rows[1].at("gate"), "passed");
  EXPECT_EQ(report.rows[2].at("status"), "failed");
  EXPECT_TRUE(
      has(written(ablate_page(report), PageFormat::text), "baseline again: failed: the device is gone"));
  now.clear();
  r.stop = [&]() -> bool {
    if (!stored.empty()) return false;
    throw std::bad_alloc();
  };
  stored.clear();
  EXPECT_THROW(run(r), std::bad_alloc) << "of the first";
}

TEST(Ablate, NoSwitchIsPredictedBelowItsFloor) {
  AblateRequest r = little_request();
  r.steps = 1;
  r.warmups = 0;
  r.gate_steps = 1;
  r.only.clear();
  for (const AblationSwitch& s : ablation_switches()) r.only.push_back(s.name);
  int timed = 0;
  for (const Json& row : run(r).stored) {
    if (!row.contains("p50_ms") || row.at("group") == "ranks") continue;  // which has no ops of its own
    ++timed;
    EXPECT_LE(row.at("roofline_ms"), row.at("own_roofline_ms")) << row.at("group") << row.at("switch");
    EXPECT_GT(row.at("roofline_ms"), 0);
  }
  EXPECT_GT(timed, 15);
}

// Weights shared out among the ranks take less of each; the losses agree, or there is no figure.
TEST(Ablate, FsdpIsComparedOnItsOwnRanks) {
  AblateRequest r = little_request();
  r.only = {"fused_rope", "fsdp"};
  const Done d = run(r);
  const AblationLine line = ablation_lines(d.report.rows).at(2);
  EXPECT_EQ(line.label, "fsdp, 2 ranks");
  EXPECT_EQ(line.row.at("against"), "ddp:naive");
  EXPECT_EQ(line.row.at("gate"), "passed");
  EXPECT_LT(line.memory, 1) << "of ddp:naive's peak";
  EXPECT_GT(line.memory, 0);
  EXPECT_GT(line.baseline_ms, 0);
  const std::string text = written(ablate_page(d.report), PageFormat::text);
  EXPECT_TRUE(has(text, "on several ranks of one device, against ddp:naive on the same")) << text;
  EXPECT_TRUE(has(text, "say nothing of an interconnect"));
}

TEST(Ablate, FromABaselineInBf16ThereIsNoSwitchToIt) {
  AblateRequest r = little_request();
  r.base = Precision::bf16;
  r.only = {"fused_rope"};
  const Done d = run(r);
  for (const Json& row : d.stored) {
    EXPECT_EQ(row.at("dtype"), "bf16");
    EXPECT_EQ(row.at("base"), "bf16");
    EXPECT_EQ(row.at("gate"), "passed");
  }
  EXPECT_NE(d.stored[0].at("study"), run([] {
                                       AblateRequest fp32 = little_request();
                                       fp32.only = {"fused_rope"};
                                       return fp32;
                                     }())
                                         .stored[0]
                                         .at("study"));
  r.only = {"bf16"};
  EXPECT_THROW(check_ablate(r), Error);
}

TEST(Ablate, WhatIsAskedWronglyIsSaid) {
  const TempFolder folder;
  const std::string out = "--out=" + (folder / "runs");
  EXPECT_TRUE(has(said({"ablate", "--only", "fusd_rope", out}), "did you mean 'fused_rope'?"));
  EXPECT_TRUE(has(said({"ablate", "--size", "smal", out}), "did you mean 'small'?"));
  EXPECT_TRUE(has(said({"ablate", "--size", "nano,tiny", out}), "--size is 'nano,tiny'; expected one"));
  EXPECT_TRUE(has(said({"ablate", "--device", "meta", out}), "meta runs no kernels"));
  EXPECT_TRUE(has(said({"ablate", "--steps", "0", out}), "--steps"));
  EXPECT_TRUE(has(said({"ablate", "--tolerance", "-1", out}), "--tolerance"));
  EXPECT_TRUE(has(said({"ablate", "--size", "nano", "--device", "cpu", "--out", "/dev/null/x"}),
                  "cannot write /dev/null/x/results.jsonl"));
}

TEST(Report, PageAndChartsAreMadeOfTheStoredRows) {
  const TempFolder folder;
  const std::string runs = folder / "runs", page = folder / "page";
  EXPECT_TRUE(has(said({"report", "--out", runs}), "there are no stored rows"));
  EXPECT_TRUE(has(said({"report", "--out", runs}), "kiln ablate --quick"));
  AblateRequest r = little_request();
  r.only = {"fused_rope"};
  for (const Json& row : run(r).stored) append_results(runs, {row.dump()});
  std::ofstream(runs + "/results.jsonl", std::ios::app) << R"({"command":"abl)";
  EXPECT_EQ(said({"report", "--from", runs, "--out", page}), "done");
  const auto text_of = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string text = text_of(page + "/report.md");
  EXPECT_TRUE(has(text, "| fused_rope |"));
  EXPECT_TRUE(has(text, "the last line was cut off after 15 bytes and is removed"));
  EXPECT_TRUE(has(text_of(page + "/report/ablation-1-speedup.svg"), "fused_rope"));
  EXPECT_TRUE(
      has(said({"report", "--from", runs, "--out", "/dev/null/x"}), "cannot make the folder /dev/null/x"));
  for (const char* name : {"ablation-2-memory.svg", "steps-1.svg", "memory-3.svg", "mine.svg", "steps-1.txt"})
    std::ofstream(page + "/report/" + name) << "of an earlier page";
  EXPECT_EQ(said({"report", "--from", runs, "--out", page}), "done");
  for (const char* name : {"ablation-2-memory.svg", "steps-1.svg", "memory-3.svg"})
    EXPECT_EQ(text_of(page + "/report/" + name), "") << name;
  for (const char* name : {"ablation-1-memory.svg", "mine.svg", "steps-1.txt"})
    EXPECT_NE(text_of(page + "/report/" + name), "") << name;
  EXPECT_FALSE(has(text_of(page + "/report.md"), "cut off")) << "repaired for good";
  append_results(folder / "others", {R"({"command":"profile"})"});
  EXPECT_TRUE(has(said({"report", "--from", folder / "others", "--out", page}), "none of the 1 rows"));
  // A line that is removed for good is mentioned, whatever comes of the rest.
  std::ofstream(folder / "others/results.jsonl", std::ios::app) << R"({"comm)";
  testing::internal::CaptureStderr();
  const std::string failure = said({"report", "--from", folder / "others", "--out", page});
  EXPECT_TRUE(has(testing::internal::GetCapturedStderr(), "the last line was cut off after 6 bytes"));
  EXPECT_TRUE(has(failure, "none of the 1 rows"));
}

}  // namespace
}  // namespace kiln::cli
