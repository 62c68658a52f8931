// The pages of `kiln precision`: what they say comes from the rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/json.h"
#include "studies/precision/render.h"

namespace kiln::cli {
namespace {

std::string text_of(const StudyPage& page) { return written(page, PageFormat::text); }

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

TEST(PrecisionAccumulatePage, HasTheRowsFiguresAndFits) {
  RunningSumReport report = running_sum_study({});
  const std::string text = text_of(running_sum_page(report));
  for (const char* sum : {"10.0001335", "9.95312500", "10.0021362", "4.00000000", "10.0097656"})
    EXPECT_NE(text.find(sum), std::string::npos) << sum;
  EXPECT_NE(text.find("stops at 4\n"), std::string::npos);
  EXPECT_LE(widest_line(text), 100u);
  for (RunningSumRequest other : {RunningSumRequest{.count = 100000, .value = 1e-7, .runs = 2},
                                  RunningSumRequest{.count = 100000, .value = 65504, .runs = 2}})
    EXPECT_LE(widest_line(text_of(running_sum_page(running_sum_study(other)))), 100u) << other.value;

  report.rows[4].stalls_at = 2.5;
  EXPECT_NE(text_of(running_sum_page(report)).find("stops at 2.5\n"), std::string::npos);
}

TEST(PrecisionAccumulatePage, JsonHasEveryRow) {
  const RunningSumReport report = running_sum_study({.seed = 5});
  const Json page = Json::parse(written(running_sum_page(report), PageFormat::json));
  EXPECT_EQ(page.at("study"), "accumulate");
  EXPECT_EQ(page.at("count"), 1000);
  EXPECT_EQ(page.at("seed"), 5);
  ASSERT_EQ(page.at("rows").size(), 10u);
  const Json& row = page["rows"][1];
  EXPECT_EQ(row.at("accumulator"), "fp16");
  EXPECT_EQ(row.at("added"), "fp16");
  EXPECT_EQ(row.at("method"), "plain");
  EXPECT_EQ(row.at("sum"), 9.953125);
  EXPECT_EQ(row.at("predicted"), 9.953125);
  EXPECT_EQ(row.at("limit"), "spacing");
  EXPECT_TRUE(row.at("stalls_at").is_null());
  EXPECT_EQ(page["rows"][4].at("stalls_at"), 4);
  EXPECT_GT(page["rows"][9].at("spread").get<double>(), 0);
}

TEST(PrecisionToyModelPage, NamesWhatDiffersFromThePolicy) {
  ToyModelReport report = toy_model_study({});
  std::string text = text_of(toy_model_page(report));
  EXPECT_LE(widest_line(text), 100u);
  EXPECT_NE(text.find("Every tensor has the dtype"), std::string::npos);
  EXPECT_EQ(text.find("policy:"), std::string::npos);
  report.runs[1].tensors.back().dtype = DType::f16;
  text = text_of(toy_model_page(report));
  EXPECT_NE(text.find("fp16 (policy: fp32)"), std::string::npos);
  EXPECT_EQ(text.find("Every tensor has the dtype"), std::string::npos);
  EXPECT_EQ(
      Json::parse(written(toy_model_page(report), PageFormat::json)).at("runs").at(1).at("as_predicted"),
      false);
}

TEST(PrecisionToyModelPage, JsonHasEveryTensorOfEachPolicy) {
  const ToyModelReport report = toy_model_study({.in = 3});
  const Json page = Json::parse(written(toy_model_page(report), PageFormat::json));
  EXPECT_EQ(page.at("study"), "toymodel");
  EXPECT_EQ(page.at("in"), 3);
  ASSERT_EQ(page.at("runs").size(), 3u);
  for (const Json& run : page["runs"]) {
    EXPECT_EQ(run.at("tensors").size(), report.runs[0].tensors.size());
    EXPECT_EQ(run.at("as_predicted"), true);
  }
  EXPECT_EQ(page["runs"][2].at("precision"), "autocast");
  EXPECT_EQ(page["runs"][2].at("compute"), "bf16");
}

TEST(PrecisionLayerNormPage, AnswersFromTheRows) {
  LayerNormReport report = layer_norm_study({});
  EXPECT_LE(widest_line(text_of(layer_norm_page(report))), 100u);
  EXPECT_NE(
      layer_norm_answer(report, DType::f16).find("fp16? yes, for range: variance overflows from scale 10;"),
      std::string::npos);
  const std::string bf16 = layer_norm_answer(report, DType::bf16);
  EXPECT_NE(bf16.find("bf16? yes, for digits, not range: mean alone "), std::string::npos) << bf16;
  const std::string text = text_of(layer_norm_page(report));
  EXPECT_TRUE(text.ends_with(bf16 + "\n"));

  for (LayerNormRow& row : report.rows)
    for (LayerNormCell& c : row.cells) c = {.error = 2 * row.floor};
  EXPECT_NE(layer_norm_answer(report, DType::bf16).find("bf16? no: "), std::string::npos);
  report.rows.back().cells[2].overflows = 1;
  EXPECT_NE(layer_norm_answer(report, DType::bf16).find("yes, for range: rsqrt overflows from scale 10000"),
            std::string::npos);
}

TEST(PrecisionLayerNormPage, JsonHasEveryCell) {
  const LayerNormReport report = layer_norm_study({.width = 33, .rows = 2});
  const Json page = Json::parse(written(layer_norm_page(report), PageFormat::json));
  EXPECT_EQ(page.at("study"), "layernorm");
  EXPECT_EQ(page.at("width"), 33);
  ASSERT_EQ(page.at("rows").size(), 2u * 8 * kNarrowParts);
  for (const Json& row : page["rows"]) {
    EXPECT_TRUE(row.at("error").is_null() || row["error"].get<double>() >= 0);
    EXPECT_GT(row.at("roundings").get<int64_t>(), 0);
  }
  EXPECT_EQ(page.at("answer_bf16"), layer_norm_answer(report, DType::bf16));
}

TEST(PrecisionAccumulationPage, HasEveryPolicyAndFits) {
  GradAccumulationReport report;
  report.rows = gradient_accumulation(report.request);
  EXPECT_LE(widest_line(text_of(grad_accumulation_page(report))), 100u);
  const Json page = Json::parse(written(grad_accumulation_page(report), PageFormat::json));
  EXPECT_EQ(page.at("study"), "accumulation");
  EXPECT_EQ(page.at("device"), "cpu");
  ASSERT_EQ(page.at("rows").size(), 6u * 4);
  EXPECT_EQ(page["rows"][19].at("precision"), "bf16");
  EXPECT_EQ(page["rows"][19].at("grad"), "bf16");
  EXPECT_EQ(page["rows"][19].at("micro_batches"), 64);
  report.rows[0].cells[0].error = 0.125;
  EXPECT_NE(text_of(grad_accumulation_page(report)).find("1.2e-01"), std::string::npos);
}

TEST(PrecisionAccumulationPage, HasTheOtherSums) {
  GradAccumulationRequest request;
  request.seed = 4;
  request.micro_batches = {1};
  SumRequest& sums = request.sums;
  sums.tokens = 65, sums.elements = 16, sums.ranks = 3, sums.steps = 20, sums.params = 4;
  sums.width = 99, sums.rows = 2, sums.timed_elements = 64;
  sums.timing = {.warmups = 0, .min_samples = 1, .max_samples = 1, .min_seconds = 0, .max_seconds = 0.01};
  GradAccumulationReport report = grad_accumulation_study(request);
  EXPECT_LE(widest_line(text_of(grad_accumulation_page(report))), 100u);
  const Json page = Json::parse(written(grad_accumulation_page(report), PageFormat::json));
  ASSERT_EQ(page.at("sums").size(), 4u);
  const char* names[] = {"linear_ce_dw", "all_reduce", "adam_state", "softmax"};
  const std::size_t rows[] = {12, 9, 30, 11};
  for (std::size_t i = 0; i < 4; ++i) {
    const Json& table = page["sums"][i];
    EXPECT_EQ(table.at("name"), names[i]);
    ASSERT_EQ(table.at("rows").size(), rows[i]) << names[i];
    const Json& row = table["rows"][1];
    for (const char* key : {"quantity", "method", "dtype", "ran", "roundings", "error", "predicted", "bound",
                            "floor", "ns", "of_fp32", "bytes"})
      EXPECT_TRUE(row.contains(key)) << key;
  }
  EXPECT_EQ(page["sums"][3]["rows"][8].at("ran"), "softmax fused, cpu");
  EXPECT_TRUE(page["sums"][2]["rows"][1].at("ns").is_null());  // v: its cost is with m
}

TEST(PrecisionAccumulationPage, SaysWhichSumsAreLost) {
  SumTable table{"t", "a title", "thing", {}};
  table.rows = {{"p", DType::bf16, "plain", "loop, host", 3, 0.02, 0.01, 1, 0.001, 5, 4, 2.5},
                {"p", DType::f32, "op", "softmax fused, cuda:0", 3, 1e-7, 1e-7, 1, 0, 0.5, 8, 1}};
  std::string text = text_of({.tables = {sums_table(table)}});
  EXPECT_NE(text.find("a title\nns and bytes: of one thing\n"), std::string::npos);
  EXPECT_NE(text.find("op: softmax fused, cuda:0"), std::string::npos);
  EXPECT_NE(text.find("every row is within a tenth"), std::string::npos);
  EXPECT_NE(text.find("2.50"), std::string::npos);
  table.rows[0].error = INFINITY;
  text = text_of({.tables = {sums_table(table)}});
  EXPECT_NE(text.find("off by a tenth or more: plain of p in bf16\n"), std::string::npos);
  EXPECT_NE(text.find("inf"), std::string::npos);
  EXPECT_TRUE(sums_json(table)["rows"][0]["error"].is_null());
}

}  // namespace
}  // namespace kiln::cli
