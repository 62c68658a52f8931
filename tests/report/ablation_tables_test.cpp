// Tables, sentences and charts of an ablation follow from its rows: change a row and they change.
#include "report/ablation_tables.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "report/report_page.h"

namespace kiln {
namespace {

using nlohmann::json;

json samples(double ms) {
  json all = json::array();
  for (int i = 0; i < 8; ++i) all.push_back(ms * (1 + 0.001 * i));
  return all;
}

json row(const char* group, const char* name, double ms, double peak_mib) {
  return {{"command", "ablate"},
          {"study", "s1"},
          {"group", group},
          {"switch", name},
          {"gate", "passed"},
          {"size", "tiny"},
          {"batch", 2},
          {"ctx", 64},
          {"device", "cpu"},
          {"dtype", "fp32"},
          {"p50_ms", ms},
          {"mean_ms", ms},
          {"ci95_low_ms", 0.99 * ms},
          {"ci95_high_ms", 1.01 * ms},
          {"verdict", "stable"},
          {"raw_samples", samples(ms)},
          {"tokens_per_s", 128e3 / ms},
          {"predicted_ms", ms / 4},
          {"floor_ms", 1.5},
          {"peak_bytes", peak_mib * 0x1p20},
          {"predicted_peak_bytes", peak_mib * 0x1p20},
          {"floor_bytes", 0x1p20},
          {"peak_by_tag", {{"param", 0x1p20}, {"activation", (peak_mib - 1) * 0x1p20}}},
          {"gate_steps", 4},
          {"gate_errors", {{"logits", 1e-6}, {"gradients", 2e-6}, {"worst_gradient", "w"}, {"loss", 3e-7}}},
          {"gate_tolerances", {{"logits", 2e-5}, {"gradients", 1e-4}, {"loss", 1e-4}}},
          {"baseline_first_loss", 5.5},
          {"baseline_last_loss", 4.25},
          {"build_id", "b1"},
          {"host", {{"device_name", "Machine"}}},
          {"time", "2026-01-02T03:04:05Z"}};
}

json without_figures(json r, const char* gate, const char* reason) {
  for (const char* key :
       {"p50_ms", "mean_ms", "raw_samples", "tokens_per_s", "predicted_ms", "peak_bytes", "verdict"})
    r.erase(key);
  r["gate"] = gate;
  r["reason"] = reason;
  return r;
}

std::vector<json> study() {
  return {row("baseline", "", 20, 8),
          row("alone", "fused_rope", 16, 8),
          row("alone", "bf16", 20.01, 5),
          without_figures(row("alone", "cuda_graph", 1, 1), "not available", "cpu cannot capture a step"),
          row("added", "fused_rope", 16, 8),
          row("added", "bf16", 10, 4),
          without_figures(row("added", "cuda_graph", 1, 1), "not available", "cpu cannot capture a step"),
          row("again", "", 20.01, 8)};
}

bool says(const std::vector<std::string>& sentences, std::string_view part) {
  return std::any_of(sentences.begin(), sentences.end(),
                     [&](const std::string& s) { return s.find(part) != std::string::npos; });
}

std::size_t column(const TextTable& table, const char* title) {
  const auto found = std::find(table[0].begin(), table[0].end(), title);
  EXPECT_NE(found, table[0].end()) << title;
  return static_cast<std::size_t>(found - table[0].begin());
}

TEST(AblationTables, SpeedUpsComeFromTheSamples) {
  std::vector<json> rows = study();
  const TextTable table = speedup_table(ablation_lines(rows));
  const std::size_t speed = column(table, "speed-up");
  EXPECT_EQ(table[2][0], "fused_rope");
  EXPECT_EQ(table[2][speed], "1.25x");
  EXPECT_EQ(table[3][speed], "1.00x (same)");
  EXPECT_EQ(table[6][0], "+bf16");
  EXPECT_EQ(table[6][speed], "2.00x");
  EXPECT_EQ(table[6][column(table, "foretold")], "2.00x");
  EXPECT_EQ(table[6][column(table, "predicted ms")], "2.5");
  EXPECT_EQ(table[6][column(table, "floor ms")], "1.5");
  rows[1]["raw_samples"] = samples(40);
  EXPECT_EQ(speedup_table(ablation_lines(rows))[2][speed], "0.50x");
  rows[1]["raw_samples"] = {10.0, 11.0, 12.0};
  rows[0]["raw_samples"] = {20.0, 21.0, 22.0};
  EXPECT_EQ(speedup_table(ablation_lines(rows))[2][speed], "1.91x (too few samples)");
}

TEST(AblationTables, WhereTheyTookTurnsThoseCount) {
  std::vector<json> rows = study();
  rows[1]["baseline_samples"] = samples(48);  // the machine was slow by then, for both
  const TextTable table = speedup_table(ablation_lines(rows));
  EXPECT_EQ(table[2][column(table, "speed-up")], "3.00x");
  EXPECT_EQ(table[2][column(table, "baseline ms")], "48");
}

TEST(AblationTables, ARowThatDidNotPassHasNoFigureAndAReason) {
  std::vector<json> rows = study();
  rows[1] = without_figures(rows[1], "failed", "logits are off by 1, allowed are 2e-05");
  const std::vector<AblationLine> lines = ablation_lines(rows);
  const TextTable table = speedup_table(lines);
  EXPECT_EQ(table[2][1], "gate failed");
  for (std::size_t c = 2; c < table[2].size(); ++c) EXPECT_EQ(table[2][c], "-") << table[0][c];
  EXPECT_EQ(table[4][1], "not available");
  const std::vector<std::string> said = ablation_sentences(lines);
  EXPECT_TRUE(says(said, "fused_rope: gate failed: logits are off by 1, allowed are 2e-05"));
  EXPECT_TRUE(says(said, "cuda_graph: not available: cpu cannot capture a step"));
  EXPECT_FALSE(says(said, "+cuda_graph")) << "once is enough";
  EXPECT_FALSE(speedup_chart(lines).bars[1].value.has_value());
  // Times that were stored with a gate that failed are no figures either.
  rows[2]["gate"] = "failed";
  EXPECT_EQ(speedup_table(ablation_lines(rows))[3][1], "gate failed");
}

TEST(AblationTables, ConclusionsFollowTheRows) {
  std::vector<json> rows = study();
  std::vector<std::string> said = ablation_sentences(ablation_lines(rows));
  EXPECT_TRUE(says(said, "all of them together, 20 to 10 ms: 2.00x; peak memory 8.00 to 4.00 MiB, 0.50x"));
  EXPECT_TRUE(says(said, "by itself fused_rope gains most: 1.25x"));
  EXPECT_TRUE(says(said, "4 steps of training take the baseline's loss from 5.5000 to 4.2500"));
  EXPECT_TRUE(says(said, "against itself, at the end, is 1.00x (same), as it should be"));
  EXPECT_FALSE(says(said, "noisy"));
  rows[2] = row("alone", "bf16", 5, 5);
  rows[5]["verdict"] = "noisy";
  rows[7] = row("again", "", 12, 8);
  said = ablation_sentences(ablation_lines(rows));
  EXPECT_TRUE(says(said, "by itself bf16 gains most: 4.00x"));
  EXPECT_TRUE(says(said, "noisy, their means are not known to 5 %: +bf16"));
  EXPECT_TRUE(says(said, "is 1.67x: differences smaller than that are the machine's"));
  rows.erase(rows.begin());
  EXPECT_TRUE(says(ablation_sentences(ablation_lines(rows)), "there is no baseline"));
}

TEST(AblationTables, MemoryStandsBesideItsPrediction) {
  std::vector<json> rows = study();
  TextTable table = ablation_memory_table(ablation_lines(rows));
  EXPECT_EQ(table.size(), 8U) << "the baseline once";
  EXPECT_EQ(table[6][1], "4.00");
  EXPECT_EQ(table[6][column(table, "of baseline")], "0.50x");
  EXPECT_EQ(table[6][column(table, "activation")], "3.00");
  EXPECT_EQ(table[4][1], "not available");
  rows[5]["peak_bytes"] = 6 * 0x1p20;
  table = ablation_memory_table(ablation_lines(rows));
  EXPECT_EQ(table[6][1], "6.00");
  EXPECT_EQ(table[6][column(table, "predicted")], "4.00");
  EXPECT_EQ(ablation_memory_chart(ablation_lines(rows)).bars[5].value, 6.0);
}

TEST(AblationTables, TheGateShowsErrorsBesideWhatIsAllowed) {
  std::vector<json> rows = study();
  rows[1]["gate_errors"]["logits"] = nullptr;  // it was not finite
  const TextTable table = gate_table(ablation_lines(rows));
  EXPECT_EQ(table[1][3], "not finite, of 2.0e-05");
  EXPECT_EQ(table[2][4], "2.0e-06 of 1.0e-04");
  EXPECT_EQ(table[2][2], "w");
}

TEST(AblationTables, OfTwoRowsOfOnePlaceTheLaterCounts) {
  std::vector<json> rows = study();
  rows.push_back(row("alone", "fused_rope", 4, 8));
  std::reverse(rows.begin(), rows.end() - 1);  // and the order is the study's, not the file's
  const TextTable table = speedup_table(ablation_lines(rows));
  EXPECT_EQ(table[1][0], "baseline");
  EXPECT_EQ(table.back()[0], "baseline again");
  const auto found =
      std::find_if(table.begin(), table.end(), [](const auto& l) { return l[0] == "fused_rope"; });
  EXPECT_EQ((*found)[column(table, "speed-up")], "5.00x");
}

TEST(BarChart, BarsAreAsLongAsTheirFigures) {
  BarChart chart;
  chart.title = "a < b";
  chart.axis = "x";
  chart.bars = {{"one", 1.0, "1.0", 2.0, 0},
                {"none", std::nullopt, "not available", std::nullopt, 1},
                {"four", 4.0, "4.0", std::nullopt, 1}};
  const std::string svg = bar_chart_svg(chart);
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_NE(svg.find("not available"), std::string::npos);
  const auto width_of = [&](const std::string& text, const char* colour) {
    const std::size_t at = text.rfind("width=", text.rfind(colour));
    return std::stod(text.substr(at + 7));
  };
  EXPECT_NEAR(width_of(svg, "#66a5d4") / width_of(svg, "#777777"), 4, 0.01);
  chart.bars[0].value = 3;
  EXPECT_NE(bar_chart_svg(chart), svg);
  EXPECT_NE(bar_chart_svg({}).find("</svg>"), std::string::npos);
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(ReportPage, TablesAndPicturesChangeWithTheRows) {
  std::vector<json> rows = study();
  const ReportPage page = make_report(rows, {"a line was left out"}, "report");
  EXPECT_EQ(page.rows, 8U);
  EXPECT_EQ(page.studies, 1U);
  ASSERT_EQ(page.pictures.size(), 2U);
  EXPECT_TRUE(has(page.markdown, "- a line was left out\n"));
  EXPECT_TRUE(has(page.markdown, "## Ablation 1: tiny, batch 2, context 64"));
  EXPECT_TRUE(has(page.markdown, "On cpu (Machine), build b1."));
  EXPECT_TRUE(has(page.markdown, "| +bf16 | 10 |"));
  EXPECT_TRUE(has(page.markdown, "![speed-up of every row](report/ablation-1-speedup.svg)"));
  EXPECT_TRUE(has(page.markdown, "measured 2026-01-02T03:04:05Z to 2026-01-02T03:04:05Z"));
  rows[5] = row("added", "bf16", 5, 4);
  const ReportPage other = make_report(rows, {}, "report");
  EXPECT_TRUE(has(other.markdown, "| +bf16 | 5 |"));
  EXPECT_TRUE(has(other.markdown, "20 to 5 ms: 4.00x"));
  EXPECT_NE(other.pictures[0].svg, page.pictures[0].svg);
  EXPECT_EQ(other.pictures[1].svg, page.pictures[1].svg) << "its memory is the same";
}

TEST(ReportPage, SeveralMachinesAndBuildsAreSaidAndKeptApart) {
  std::vector<json> rows = study();
  for (json r : study()) {
    r["study"] = "s2";
    r["host"]["device_name"] = "Other";
    r["build_id"] = "b2";
    rows.push_back(r);
  }
  const ReportPage page = make_report(rows, {}, "report");
  EXPECT_EQ(page.studies, 2U);
  EXPECT_EQ(page.pictures.size(), 4U);
  EXPECT_TRUE(has(page.markdown, "rows of 2 machines: cpu (Machine); cpu (Other)"));
  EXPECT_TRUE(has(page.markdown, "rows of 2 builds: b1; b2"));
  EXPECT_TRUE(has(page.markdown, "On cpu (Other), build b2."));
}

json step_row(const char* dtype, double ms) {
  json r = row("", "", ms, 4);
  r["command"] = "bench step";
  r["mode"] = "full";
  r["preset"] = "optimized";
  r["dtype"] = dtype;
  return r;
}

TEST(ReportPage, StepsAndMemoryHaveTheirTables) {
  json memory = {{"command", "memory"},
                 {"size", "tiny"},
                 {"phase", "full"},
                 {"dtype", "fp32"},
                 {"batch", 4},
                 {"ctx", 64},
                 {"device", "meta"},
                 {"floor_bytes", 0x1p20},
                 {"predicted_peak_bytes", 3 * 0x1p20},
                 {"measured_peak_bytes", nullptr}};
  std::vector<json> rows = {
      step_row("fp32", 10), step_row("bf16", 4), step_row("bf16", 5), memory, {{"command", "profile"}}};
  ReportPage page = make_report(rows, {}, "report");
  EXPECT_EQ(page.rows, 3U) << "of a row that was measured again the later counts, and profile has no table";
  EXPECT_TRUE(has(page.markdown, "5 stored rows, 3 of them below"));
  EXPECT_TRUE(has(page.markdown, "| tiny | full | bf16 | 2 | 64 | optimized | - | - | 5 |"));
  EXPECT_TRUE(has(page.markdown, "fp32 to bf16 (optimized)"));
  EXPECT_TRUE(has(page.markdown, "| - | 3.00 | 1.00 | 3.00x |"));
  EXPECT_FALSE(has(page.markdown, "machines")) << "a prediction is no machine's";
  const std::string before = page.pictures[0].svg;
  rows[1] = rows[2] = step_row("bf16", 8);
  page = make_report(rows, {}, "report");
  EXPECT_NE(page.pictures[0].svg, before);
  rows[2]["gate"] = "no memory";
  rows[2].erase("p50_ms");
  EXPECT_TRUE(has(make_report(rows, {}, "report").markdown, "| OOM |"));
}

TEST(ReportPage, RowsOfAnyShapeAreSurvived) {
  const std::vector<json> rows = {
      {{"command", "ablate"}},
      {{"command", "ablate"}, {"group", 5}, {"gate", json::array()}, {"raw_samples", "x"}},
      {{"command", "bench step"}, {"host", 3}, {"p50_ms", "fast"}},
      {{"command", "memory"}, {"floor_bytes", 0}},
      {{"command", 7}},
      json::object()};
  EXPECT_GT(make_report(rows, {}, "report").rows, 0U);
  EXPECT_EQ(make_report({}, {}, "report").rows, 0U);
}

}  // namespace
}  // namespace kiln
