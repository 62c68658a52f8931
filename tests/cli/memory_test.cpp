// The pages of `kiln memory`: what they say comes from the rows; and what the command refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "kiln/command_line.h"
#include "studies/memory/render.h"
#include "support/has.h"
#include "support/said.h"
#include "support/temp_folder.h"

namespace kiln::cli {
namespace {

MemoryStudyRequest small_request(const std::string& folder) {
  MemoryStudyRequest r;
  r.sizes = {find_model_size("nano")};
  r.contexts = {24};
  r.precisions = {Precision::fp32, Precision::bf16};
  r.modes = {StepMode::forward, StepMode::full};
  r.batch = 2;
  r.exports = {"svg", "html", "pickle", "json"};
  r.folder = folder;
  return r;
}

TEST(Memory, EveryRowIsMeasuredPredictedAndWritten) {
  const TempFolder folder;
  const MemoryReport report = memory_report(small_request(folder / "memory"), [](const std::string&) {});
  ASSERT_EQ(report.rows.size(), 4u);
  const Json page = Json::parse(written(memory_page(report), PageFormat::json));
  for (const Json& row : page.at("rows")) {
    EXPECT_EQ(row.at("measured_peak_bytes"), row.at("predicted_peak_bytes"));
    EXPECT_EQ(row.at("measured_peak_by_tag"), row.at("predicted_peak_by_tag"));
    EXPECT_EQ(row.at("peak").at("bytes"), row.at("measured_peak_bytes"));
    EXPECT_LE(row.at("floor_bytes"), row.at("predicted_peak_bytes"));
    int64_t sum = 0, lines = 0, layers = 0;
    for (const Json& g : row.at("by_op")) sum += g.at("at_peak_bytes").get<int64_t>();
    for (const Json& g : row.at("by_line")) lines += g.at("at_peak_bytes").get<int64_t>();
    for (const Json& g : row.at("by_layer")) layers += g.at("at_peak_bytes").get<int64_t>();
    EXPECT_EQ(sum, row.at("measured_peak_bytes"));
    EXPECT_EQ(lines, sum);
    EXPECT_EQ(layers, sum);
    ASSERT_EQ(row.at("files").size(), 4u);
    for (const Json& file : row["files"])
      EXPECT_GT(std::filesystem::file_size(file.get<std::string>()), 1000u);
    for (const char* key : {"size", "phase", "dtype", "ctx", "batch", "parameters", "residual_stream_bytes",
                            "largest", "phases", "events", "dropped_events", "not_measured"})
      EXPECT_TRUE(row.contains(key)) << key;
  }
  ASSERT_EQ(page.at("precision").size(), 2u);
  EXPECT_EQ(page["precision"][0].at("to"), "bf16");
  EXPECT_TRUE(
      has(written(memory_page(report), PageFormat::text), "measured and predicted are the same to the byte"));
  EXPECT_EQ(memory_result_lines(report).size(), 4u);
}

TEST(Memory, TextFollowsTheRows) {
  MemoryStudyRequest request = small_request("");
  request.exports = {};
  request.device = Device::meta();
  MemoryReport report = memory_report(request, [](const std::string&) {});
  std::string text = written(memory_page(report), PageFormat::text);
  EXPECT_TRUE(has(text, "predicted only, 4 rows: meta runs no kernels"));
  EXPECT_TRUE(has(text, "gradients bf16 instead of fp32"));
  EXPECT_TRUE(has(text, "one tensor of the residual stream: 2 x 24 x 64 x 2 B = 0.01 MiB"));
  EXPECT_FALSE(has(text, ", comm")) << "there is one rank";
  MemoryRow& last = report.rows.back();
  last.measured = last.predicted;
  last.measured->peak_total += 512;
  last.largest.front().line = "somewhere.cpp:11";
  last.by_op.front().name = "an op of its own";
  last.peak.by_tag[Tag::comm] = std::size_t{123} << 20;
  last.own_peak[Tag::comm] = std::size_t{124} << 20;
  last.scores = last.peak.bytes / 2;
  last.dropped = 17;
  text = written(memory_page(report), PageFormat::text);
  for (const char* part : {"differs from predicted by 512 bytes", "somewhere.cpp:11", "an op of its own",
                           "123.00", "124.00", "scores hold 50.0 % of the peak", "17 older events"})
    EXPECT_TRUE(has(text, part)) << part;
  EXPECT_TRUE(has(text, "at the peak there is also activation, ")) << text;
  EXPECT_TRUE(has(text, ", comm"));
  for (MemoryRow& row : report.rows)
    for (const Tag t : {Tag::activation, Tag::workspace, Tag::comm, Tag::data}) row.peak.by_tag[t] = 0;
  EXPECT_TRUE(has(written(memory_page(report), PageFormat::text), "at the peak there is also nothing else"));
}

TEST(Memory, ReasonsComeFromThePolicies) {
  const PrecisionPolicy fp32 = policy_of(Precision::fp32), bf16 = policy_of(Precision::bf16),
                        autocast = policy_of(Precision::autocast);
  EXPECT_EQ(reason_for(Tag::grad, fp32, bf16), "gradients stay fp32");
  EXPECT_EQ(reason_for(Tag::grad, fp32, policy_of(Precision::bf16, true)), "gradients bf16 instead of fp32");
  EXPECT_EQ(reason_for(Tag::optim, fp32, policy_of(Precision::pure_bf16)),
            "Adam's moments bf16 instead of fp32");
  EXPECT_TRUE(has(reason_for(Tag::activation, fp32, autocast), "casts"));
  EXPECT_TRUE(has(reason_for(Tag::param, fp32, autocast), "master"));
  EXPECT_TRUE(has(reason_for(Tag::master, fp32, bf16), "low bits"));
}

TEST(Memory, ScalingAndSweepPagesFollowTheirRows) {
  ScalingReport scaling;
  scaling.size = "some";
  scaling.request.spec.model.vocab = 32;
  scaling.series = {
      {"naive", {{128, {}, {}, 1 << 20, 1 << 19}, {256, {}, {}, 1 << 22, 1 << 20}}, {1.75, 1.9, 0.5}}};
  scaling.series[0].points[0].predicted.peak_total = 1 << 21;
  scaling.series[0].points[1].predicted.peak_total = 1 << 23;
  std::string text = written(scaling_page(scaling), PageFormat::text);
  EXPECT_TRUE(
      has(text, "naive: activations grow as ctx^1.75 over all points (r2 0.500), as ctx^1.90 at the end"));
  EXPECT_TRUE(has(text, "25.0 %"));
  EXPECT_EQ(scaling_page(scaling).json.at("series").at(0).at("exponent"), 1.75);
  std::vector<NamedChart> charts = scaling_charts(scaling);
  ASSERT_EQ(charts.size(), 2U);
  EXPECT_EQ(charts[0].name, "scaling-some-fp32-b1-peak");
  EXPECT_FALSE(has(charts[0].svg, ">measured<")) << "nothing ran";
  EXPECT_TRUE(has(charts[1].svg, ">naive: x^1.90 at the end<"));
  scaling.series[0].points[1].measured.emplace().peak_total = 1 << 23;
  EXPECT_TRUE(has(scaling_charts(scaling)[0].svg, ">measured<"));
  scaling.series[0].points[1].predicted.peak_total = 1 << 24;
  EXPECT_NE(scaling_charts(scaling)[0].svg, charts[0].svg);
  scaling.files = {"a/b.svg"};
  EXPECT_TRUE(has(written(scaling_page(scaling), PageFormat::text), "chart: a/b.svg\n"));

  RecomputeReport sweep;
  sweep.size = "some";
  for (const Recompute& kind : {Recompute::none, Recompute::block, Recompute::every(2), Recompute::nested}) {
    SweepPoint p;
    p.recompute = kind;
    p.predicted.peak_total = std::size_t{100} << 20;
    p.flops = 1;
    sweep.sweep.points.push_back(p);
  }
  sweep.sweep.best = 2;
  sweep.sweep.points[1].formula = std::size_t{110} << 20;
  text = written(recompute_page(sweep), PageFormat::text);
  EXPECT_TRUE(has(text, "every:2 (best of one level)"));
  EXPECT_TRUE(has(text, "+10.0 %"));
  EXPECT_TRUE(has(text, "best of one level: every:2, 100.00 MiB; block +0.00"));
  const Json page = recompute_page(sweep).json;
  EXPECT_EQ(page.at("best"), "every:2");
  EXPECT_TRUE(page.at("points").at(3).at("k").is_null());
}

TEST(Memory, RefusesInOneLine) {
  const TempFolder folder;
  const std::string out = folder / "out";
  EXPECT_TRUE(has(said({"memory", "--size", "tinny", "--out", out}), "did you mean 'tiny'?"));
  EXPECT_TRUE(has(
      said({"memory", "--phase", "forwards", "--out", out}),
      "--phase is 'forwards'; expected one of: forward, forward-backward, full\ndid you mean 'forward'?"));
  EXPECT_TRUE(has(said({"memory", "--export", "png", "--out", out}), "--export is 'png'"));
  EXPECT_TRUE(has(said({"memory", "--detail", "0", "--out", out}), "--detail is '0'"));
  EXPECT_TRUE(has(said({"memory", "scaling", "--size", "nano,tiny", "--out", out}), "takes one"));
  EXPECT_TRUE(
      has(said({"memory", "recompute-sweep", "--phase", "forward"}), "recomputation happens in backward"));
  EXPECT_TRUE(has(said({"memory", "--variant", "attention=flahs"}), "did you mean 'flash'?"));
  // A file where a folder should be: said before anything runs.
  EXPECT_TRUE(
      has(said({"memory", "--size", "nano", "--out", "/dev/null"}), "cannot write /dev/null/results.jsonl"));
}

}  // namespace
}  // namespace kiln::cli
