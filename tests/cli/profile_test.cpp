// `kiln profile`: the questions of a profile and their answers, all counted from traces.
#include "studies/profile/profile.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "studies/profile/render.h"
#include "support/json_file.h"
#include "support/temp_folder.h"

namespace kiln::cli {
namespace {

ProfileRequest little(const std::string& folder) {
  ProfileRequest r;
  ModelSize size = find_model_size("nano");
  size.vocab = 61;
  r.sizes = {size};
  r.contexts = {11};
  r.precisions = {Precision::fp32};
  r.batch = 2;
  r.trace = {.warmups = 1, .steps = 3};
  r.phases = {StepPhase::forward, StepPhase::backward, StepPhase::update};
  r.device = Device::cpu();
  r.threads = 1;
  r.folder = folder;
  return r;
}

ProfileReport run(const ProfileRequest& r) {
  check_profile(r);
  return run_profile(r, [](const std::string&) {});
}

TEST(Profile, JsonAnswersEveryQuestion) {
  const TempFolder folder;
  const ProfileReport report = run(little(folder.path()));
  const Json page = Json::parse(written(profile_page(report), PageFormat::json));
  EXPECT_EQ(page.at("command"), "profile");
  EXPECT_TRUE(page.at("not_traced").empty());
  const Json& step = page.at("steps").at(0);
  EXPECT_EQ(step.at("size"), "nano");
  EXPECT_EQ(step.at("source"), "clock");
  EXPECT_EQ(step.at("graph"), "off");
  EXPECT_EQ(step.at("status"), "ok");
  EXPECT_EQ(step.at("gate"), "passed");
  EXPECT_EQ(step.at("samples"), 3);
  EXPECT_EQ(step.at("traced_steps"), 3);
  EXPECT_EQ(step.at("peak_bytes"), step.at("predicted_peak_bytes"));
  EXPECT_EQ(step.at("planned_ops"), report.steps[0].step().ops.size());

  const Json& ranges = step.at("ranges");
  EXPECT_EQ(ranges.at(0).at("phase"), "step");
  EXPECT_NEAR(ranges[0].at("wall_ms").get<double>(), step.at("traced_ms").get<double>(), 1e-6);
  EXPECT_GT(ranges[0].at("mfu").get<double>(), 0);
  EXPECT_GT(ranges[0].at("mfu_dense").get<double>(), ranges[0].at("mfu").get<double>());
  EXPECT_GT(ranges[0].at("hfu").get<double>(), 0);
  EXPECT_GE(ranges[0].at("predicted_ms"), ranges[0].at("roofline_ms"));
  EXPECT_GT(ranges[0].at("roofline_ms").get<double>(), 0);
  EXPECT_EQ(step.at("layers").size(), 4U);  // two, forward and backward

  for (const char* phase : {"forward", "backward", "optimizer"}) {
    double share = 0;
    for (const Json& k : step.at("kernels").at(phase)) share += k.at("share").get<double>();
    EXPECT_NEAR(share, 1, 1e-9) << phase;
  }
  const Json& top = step.at("top_kernel");
  EXPECT_EQ(top.at("same"), top.at("forward").at("name") == top.at("forward_backward").at("name"));
  for (const char* of : {"forward_alone", "forward", "forward_backward", "step"}) {
    const double share = step.at("matmul_share").at(of).at("share").get<double>();
    EXPECT_GT(share, 0) << of;
    EXPECT_LT(share, 1) << of;
  }
  const Json& attention = step.at("attention");
  EXPECT_EQ(attention.at("in_the_step"), false);
  for (const char* part : {"scores", "softmax", "final_matmul"}) {
    EXPECT_GT(attention.at(part).at("ms").get<double>(), 0) << part;
    EXPECT_GT(attention.at(part).at("bytes").get<double>(), 0) << part;
  }
  EXPECT_GT(attention.at("softmax_over_products_time").get<double>(), 0);
  const Json& launches = step.at("launches");
  EXPECT_EQ(launches.at("forward").get<int>() + launches.at("backward").get<int>() +
                launches.at("optimizer").get<int>(),
            launches.at("step").get<int>());
  EXPECT_LE(launches.at("forward_alone"), launches.at("forward"));
  const Json& dispatch = step.at("dispatch");
  EXPECT_NEAR(dispatch.at("busy_ms").get<double>() + dispatch.at("idle_ms").get<double>(),
              dispatch.at("wall_ms").get<double>(), 1e-6);
  EXPECT_TRUE(step.at("not_matmul").at("groups").contains("norm"));

  std::ifstream file(step.at("trace_file").get<std::string>());
  const Json timeline = json_of(file);
  EXPECT_GT(timeline.at("traceEvents").size(), 100U);

  const Json line = Json::parse(profile_result_lines(report).at(0));
  for (const char* key : {"command", "size", "device", "dtype", "mean_ms", "p50_ms", "std_ms", "raw_samples",
                          "build_id", "host", "time", "gate"})
    EXPECT_TRUE(line.contains(key)) << key;
}

std::string section(const std::string& text, const std::string& heading) {
  const std::size_t at = text.find(heading);
  EXPECT_NE(at, std::string::npos) << heading;
  return at == std::string::npos ? "" : text.substr(at, text.find("\n\n", at) - at);
}

TEST(Profile, TheBaselinesAttentionIsTakenApartInTheStep) {
  const TempFolder folder;
  ProfileRequest r = little(folder.path());
  r.preset = "baseline";
  const ProfileReport report = run(r);
  EXPECT_TRUE(report.steps[0].attention.in_the_step);
  EXPECT_EQ(report.steps[0].attention.parts[1].calls, 2);
  EXPECT_EQ(
      section(written(profile_page(report), PageFormat::text), "Softmax against").find("run separately"),
      std::string::npos);
}

TEST(Profile, WordsFollowTheSpans) {
  const TempFolder folder;
  ProfileReport report = run(little(folder.path()));
  StepProfile& p = report.steps[0];
  std::size_t widest = 0;
  std::istringstream lines(written(profile_page(report), PageFormat::text));
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  EXPECT_LE(widest, 120U);

  // A softmax a hundred times slower, a norm that takes all of forward, and a timer that disagrees.
  p.attention.parts[1].ms = 100 * (p.attention.parts[0].ms + p.attention.parts[2].ms);
  EXPECT_NE(written(profile_page(report), PageFormat::text).find("Softmax takes 100.00 times as long"),
            std::string::npos);

  for (Trace& t : p.forward.steps) {
    for (TraceSpan& s : t.spans) {
      if (s.group == KernelGroup::norm) s.end_us += 1e7;
    }
  }
  const std::string text = written(profile_page(report), PageFormat::text);
  EXPECT_NE(section(text, "The most expensive op").find("The same? No"), std::string::npos);
  EXPECT_NE(section(text, "The most expensive op").find("rms_norm"), std::string::npos);

  p.timer = summarize({p.step().ms() / 1e3, p.step().ms() / 1e3});
  EXPECT_NE(explain_difference(p).find("agree within 3 %"), std::string::npos);
  p.timer = summarize({p.step().ms() / 2e3, p.step().ms() / 2e3, p.step().ms() / 0.5e3});
  EXPECT_NE(explain_difference(p).find("the machine varies"), std::string::npos);
  p.timer = summarize({p.step().ms() / 2e3, p.step().ms() / 2e3});
  EXPECT_NE(explain_difference(p).find("the rest is the tracer"), std::string::npos);
  p.source = TraceSource::cupti;
  EXPECT_NE(explain_difference(p).find("without CUPTI"), std::string::npos);
  p.source = TraceSource::clock;

  Trace& step = p.full.steps[static_cast<std::size_t>(median_step(p.full.steps))];
  EXPECT_NE(
      written(profile_page(report), PageFormat::text).find(p.step().spans.empty() ? "?" : "launches a step"),
      std::string::npos);
  const double length = step.end_us - step.begin_us;
  for (std::size_t i = 0; i < step.spans.size(); ++i) {  // ops of no length, spread over the step
    step.spans[i].begin_us = step.begin_us + length * static_cast<double>(i + 1) / 1000;
    step.spans[i].end_us = step.spans[i].begin_us;
  }
  EXPECT_NE(written(profile_page(report), PageFormat::text).find("Launch-bound"), std::string::npos);

  p.note = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES";
  EXPECT_NE(written(profile_page(report), PageFormat::text)
                .find("CUPTI gave no records (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)"),
            std::string::npos);
  EXPECT_NE(written(profile_page(report), PageFormat::markdown).find("### The trace against the timer"),
            std::string::npos);
}

TEST(Profile, OnlyTheKernelsOfThePhasesAskedForAreListed) {
  const TempFolder folder;
  ProfileRequest r = little(folder.path());
  r.phases = {StepPhase::update};
  r.above = 0;
  const ProfileReport report = run(r);
  const Json page = Json::parse(written(profile_page(report), PageFormat::json));
  EXPECT_EQ(page["steps"][0]["kernels"].size(), 1U);
  EXPECT_TRUE(page["steps"][0]["kernels"].contains("optimizer"));
  EXPECT_EQ(written(profile_page(report), PageFormat::text).find("The ops of forward"), std::string::npos);
  for (const Json& k : page["steps"][0]["not_matmul"]["kernels"]) EXPECT_NE(k["group"], "matmul");
  EXPECT_GT(page["steps"][0]["not_matmul"]["kernels"].size(), 3U);
}

TEST(Profile, BacktracesNameTheCallersOfOps) {
  const TempFolder folder;
  ProfileRequest r = little(folder.path());
  r.stacks = true;
  const ProfileReport report = run(r);
  const Json page = Json::parse(written(profile_page(report), PageFormat::json));
  const Json& origins = page["steps"][0].at("origins");
  EXPECT_GT(origins.at("step_ms").get<double>(), 0);
  int ops = 0;
  bool attend = false;
  for (const Json& row : origins.at("rows")) {
    ops += row.at("ops").get<int>();
    attend = attend || row.at("origin").get<std::string>().find("Block::") != std::string::npos;
  }
  EXPECT_EQ(ops, page["steps"][0]["planned_ops"]);
  EXPECT_TRUE(attend);
  EXPECT_NE(written(profile_page(report), PageFormat::text).find("Where ops are called from"),
            std::string::npos);
}

TEST(Profile, TheLargestContextIsTheLastPowerOfTwoThatFits) {
  EXPECT_EQ(largest_context([](int64_t T) { return T <= 5000; }), 4096);
  EXPECT_EQ(largest_context([](int64_t T) { return T < 128; }), 128);
  EXPECT_EQ(largest_context([](int64_t) { return true; }), 1 << 20);
}

TEST(Profile, RefusesWhatCannotBeTraced) {
  ProfileRequest r = little("");
  r.device = Device::meta();
  EXPECT_THROW(check_profile(r), Error);
  r = little("");
  r.graph = GraphChoice::on;
  EXPECT_THROW(check_profile(r), Error);
  r = little("");
  r.source = TraceSource::cupti;
  EXPECT_THROW(check_profile(r), Error);
}

TEST(Profile, AStepWithoutMemoryIsMarkedSo) {
  const TempFolder folder;
  ProfileRequest r = little(folder.path());
  r.batch = 1024;
  r.contexts = {4096};
  r.variants = "attention=naive";  // a matrix of 256 GiB a layer
  const ProfileReport report = run(r);
  EXPECT_EQ(report.steps[0].status, RowStatus::oom);
  const Json page = Json::parse(written(profile_page(report), PageFormat::json));
  EXPECT_TRUE(page["steps"].empty());
  EXPECT_EQ(page["not_traced"][0]["status"], "oom");
  EXPECT_NE(written(profile_page(report), PageFormat::text).find("OOM: it needs"), std::string::npos);
}

}  // namespace
}  // namespace kiln::cli
