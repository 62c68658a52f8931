// Tables, sentences and charts of an ablation follow from its rows: change a row and they change.
#include "studies/ablation/ablation_tables.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "rows/row_values.h"
#include "studies/ablation/ablation_charts.h"
#include "support/ablation_rows.h"

namespace kiln {
namespace {

using namespace ablation_rows;

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
  std::vector<Json> rows = study();
  const TextTable table = speedup_table(ablation_lines(rows));
  const std::size_t speed = column(table, "speed-up");
  EXPECT_EQ(table[2][0], "fused_rope");
  EXPECT_EQ(table[2][speed], "1.25x");
  EXPECT_TRUE(table[3][speed].starts_with("1.000x (same: p ")) << table[3][speed];
  EXPECT_EQ(table[6][0], "+bf16");
  EXPECT_EQ(table[6][speed], "2.00x");
  EXPECT_EQ(table[6][column(table, "by roofline")], "2.00x");
  EXPECT_EQ(table[6][column(table, "own roofline ms")], "2.5");
  EXPECT_EQ(table[6][column(table, "roofline ms")], "1.5");
  rows[1]["raw_samples"] = samples(40);
  EXPECT_EQ(speedup_table(ablation_lines(rows))[2][speed], "0.50x");
  rows[1]["raw_samples"] = {10.0, 11.0, 12.0};
  rows[0]["raw_samples"] = {20.0, 21.0, 22.0};
  EXPECT_EQ(speedup_table(ablation_lines(rows))[2][speed], "1.91x (too few samples)");
}

TEST(AblationTables, AlternatingSamplesCountWhereTheyExist) {
  std::vector<Json> rows = study();
  rows[1]["baseline_samples"] = samples(48);  // the machine was slow by then, for both
  const TextTable table = speedup_table(ablation_lines(rows));
  EXPECT_EQ(table[2][column(table, "speed-up")], "3.00x");
  EXPECT_EQ(table[2][column(table, "baseline ms")], "48.17");
}

// 3 % faster in every turn, while the machine becomes half as fast: two sets of samples overlap all the way.
TEST(AblationTables, PairsAreComparedOneByOne) {
  std::vector<Json> rows = study();
  Json own = Json::array(), turns = Json::array();
  for (int i = 0; i < 8; ++i) {
    turns.push_back(16 + 2.3 * i);
    own.push_back((16 + 2.3 * i) / (1.03 + 0.0001 * i));
  }
  rows[1]["raw_samples"] = own;
  rows[1]["baseline_samples"] = turns;
  const std::vector<AblationLine> lines = ablation_lines(rows);
  EXPECT_EQ(lines[1].speed.significance, Comparison::Significance::faster);
  EXPECT_NEAR(lines[1].speed.ratio, 1.03035, 1e-9);
  EXPECT_NEAR(lines[1].speed.p, 2.0 / 256, 1e-12);
}

TEST(AblationTables, WhatIdenticalCodeShowsTooIsTheSame) {
  std::vector<Json> rows = study();
  for (Json& r : rows) {  // as on a GPU: the samples lie so close that any difference is significant
    if (!r.contains("raw_samples")) continue;
    const double ms = r["p50_ms"].get<double>();
    r["raw_samples"] = Json::array();
    for (int i = 0; i < 8; ++i) r["raw_samples"].push_back(ms * (1 + 1e-6 * i));
  }
  const auto set = [&](std::size_t i, double ms) {
    rows[i]["p50_ms"] = ms;
    for (int s = 0; s < 8; ++s) rows[i]["raw_samples"][static_cast<std::size_t>(s)] = ms * (1 + 1e-6 * s);
  };
  set(1, 20.04);
  set(2, 19.95);
  set(5, 19.9);
  set(7, 20.06);
  const std::vector<AblationLine> lines = ablation_lines(rows);
  const TextTable table = speedup_table(lines);
  const std::size_t speed = column(table, "speed-up");
  EXPECT_EQ(table[2][speed], "0.998x (same: noise is 0.3 %)");
  EXPECT_EQ(table[3][speed], "1.003x (same: noise is 0.3 %)");
  EXPECT_EQ(table[6][speed], "1.005x (faster)");
  EXPECT_EQ(table[8][speed], "0.997x (slower)");
  EXPECT_TRUE(
      says(ablation_sentences(lines), "identical code: 0.997x (slower); rows within 0.3 % of the baseline"));
  EXPECT_TRUE(says(ablation_sentences(lines), "no single switch makes the step significantly faster"));
  EXPECT_FALSE(speedups_json(lines)[1]["significant"].get<bool>());
  rows.pop_back();
  EXPECT_EQ(speedup_table(ablation_lines(rows))[3][speed], "1.003x (faster)") << "no more is known then";
}

TEST(AblationTables, WhatIsPredictedByOtherCeilingsIsNotCompared) {
  std::vector<Json> rows = study();
  for (Json& r : rows) r["ceilings"] = {{"copy", 2e10}};
  EXPECT_EQ(ablation_lines(rows)[1].own_roofline, 1.25);
  rows[1]["ceilings"]["copy"] = 1e10;
  EXPECT_EQ(ablation_lines(rows)[1].own_roofline, 0);
  EXPECT_EQ(ablation_lines(rows)[2].own_roofline, 20 / 20.01);
}

TEST(AblationTables, TheSumIsNamedByWhatItHas) {
  std::vector<Json> rows = study();
  rows[6] = added_row("recompute", {"fused_rope", "bf16", "recompute"}, 8, 3);
  rows.insert(rows.begin() + 3, row("alone", "recompute", 22, 4));
  const auto sum = [&] {
    for (const std::string& s : ablation_sentences(ablation_lines(rows))) {
      const std::size_t name = s.find(": ") + 2;
      if (s.starts_with("fastest")) return s.substr(name, s.find(", 20 to ") - name);
    }
    return std::string();
  };
  EXPECT_EQ(sum(), "all combined") << "cuda_graph could not be timed";
  rows[7] = without_figures(rows[7], "no memory", "it needs more");
  EXPECT_EQ(sum(), "up to +bf16");
  rows.erase(rows.begin() + 7);
  EXPECT_EQ(sum(), "up to +bf16") << "it was stopped";
  rows[2] = without_figures(rows[2], "failed", "logits are off");
  rows[6] = added_row("recompute", {"fused_rope", "recompute"}, 8, 3);
  EXPECT_EQ(sum(), "up to +recompute without bf16");
  // One that finds no memory on the way stays on in the rows after it.
  rows[6]["switches"] = {"fused_rope", "bf16", "recompute"};
  EXPECT_EQ(sum(), "all combined");
}

// The last row need not be the best: here recompute, added last, takes time for memory.
TEST(AblationTables, TheHeadlineIsTheFastestRowAndTheSmallest) {
  std::vector<Json> rows = study();
  rows[6] = added_row("recompute", {"fused_rope", "bf16", "recompute"}, 30, 3);
  rows.insert(rows.begin() + 3, row("alone", "recompute", 33, 7));
  std::vector<std::string> said = ablation_sentences(ablation_lines(rows));
  EXPECT_EQ(said[0], "fastest: up to +bf16, 20 to 10 ms: 2.00x; peak memory 8.00 to 4.00 MiB, 0.50x");
  EXPECT_EQ(said[1], "smallest: all combined, peak memory 8.00 to 3.00 MiB, 0.38x; 20 to 30 ms: 0.67x");
  for (Json& r : rows) {
    if (!r.contains("raw_samples") || text_at(r, "group") == "baseline") continue;
    r["raw_samples"] = rows[0]["raw_samples"];
    r["peak_bytes"] = rows[0]["peak_bytes"];
  }
  said = ablation_sentences(ablation_lines(rows));
  EXPECT_EQ(said[0], "no row is significantly faster than the baseline");
  EXPECT_EQ(said[1], "no row takes less memory than the baseline");
}

TEST(AblationTables, OneStepOfTheGateIsOne) {
  std::vector<Json> rows = study();
  rows[0]["gate_steps"] = 1;
  EXPECT_TRUE(
      says(ablation_sentences(ablation_lines(rows)), "gate: 1 step of training takes the baseline's"));
}

TEST(AblationTables, ARowThatDidNotPassHasNoFigureAndAReason) {
  std::vector<Json> rows = study();
  rows[1] = without_figures(rows[1], "failed", "logits are off by 1, allowed is 2e-05");
  const std::vector<AblationLine> lines = ablation_lines(rows);
  const TextTable table = speedup_table(lines);
  EXPECT_EQ(table[2][1], "gate failed");
  for (std::size_t c = 2; c < table[2].size(); ++c) EXPECT_EQ(table[2][c], "-") << table[0][c];
  EXPECT_EQ(table[4][1], "unavailable");
  const std::vector<std::string> said = ablation_sentences(lines);
  EXPECT_TRUE(says(said, "fused_rope: gate failed: logits are off by 1, allowed is 2e-05"));
  EXPECT_TRUE(says(said, "cuda_graph: unavailable: cpu cannot capture a step"));
  EXPECT_FALSE(says(said, "+cuda_graph")) << "once is enough";
  EXPECT_FALSE(speedup_chart(lines).bars[1].value.has_value());
  // Times that were stored with a gate that failed are no figures either.
  rows[2]["gate"] = "failed";
  EXPECT_EQ(speedup_table(ablation_lines(rows))[3][1], "gate failed");
}

TEST(AblationTables, ConclusionsFollowTheRows) {
  std::vector<Json> rows = study();
  std::vector<std::string> said = ablation_sentences(ablation_lines(rows));
  EXPECT_TRUE(says(
      said, "fastest and smallest: all combined, 20 to 10 ms: 2.00x; peak memory 8.00 to 4.00 MiB, 0.50x"));
  EXPECT_TRUE(says(said, "largest single gain: fused_rope, 1.25x"));
  EXPECT_TRUE(says(said, "4 steps of training take the baseline's loss from 5.5000 to 4.2500"));
  EXPECT_TRUE(says(said, "at the end, identical code: 1.000x (same: p "));
  EXPECT_TRUE(says(said, "; rows within 0.05 % of the baseline count as the same"));
  EXPECT_FALSE(says(said, "noisy"));
  rows[2] = row("alone", "bf16", 5, 5);
  rows[5]["verdict"] = "noisy";
  rows[7] = row("again", "", 12, 8);
  said = ablation_sentences(ablation_lines(rows));
  EXPECT_TRUE(says(said, "fastest: bf16, 20 to 5 ms: 4.00x; peak memory 8.00 to 5.00 MiB"));
  EXPECT_TRUE(says(said, "smallest: all combined, peak memory 8.00 to 4.00 MiB, 0.50x; 20 to 10 ms: 2.00x"));
  EXPECT_TRUE(says(said, "largest single gain: bf16, 4.00x"));
  EXPECT_TRUE(says(said, "noisy (±5 % not reached): +bf16"));
  EXPECT_TRUE(says(said, "at the end, identical code: 1.67x; rows within 66.7 % of the baseline count as"));
  rows.erase(rows.begin());
  EXPECT_TRUE(says(ablation_sentences(ablation_lines(rows)), "there is no baseline"));
}

TEST(AblationTables, MemoryIsShownNextToItsPrediction) {
  std::vector<Json> rows = study();
  TextTable table = ablation_memory_table(ablation_lines(rows));
  EXPECT_EQ(table.size(), 8U) << "the baseline once";
  EXPECT_EQ(table[6][1], "4.00");
  EXPECT_EQ(table[6][column(table, "of baseline")], "0.50x");
  EXPECT_EQ(table[6][column(table, "activation")], "3.00");
  EXPECT_EQ(table[4][1], "unavailable");
  rows[5]["peak_bytes"] = 6 * 0x1p20;
  table = ablation_memory_table(ablation_lines(rows));
  EXPECT_EQ(table[6][1], "6.00");
  EXPECT_EQ(table[6][column(table, "predicted MiB")], "4.00");
  EXPECT_EQ(ablation_memory_chart(ablation_lines(rows)).bars[5].value, 6.0);
}

TEST(AblationTables, TheGateShowsErrorsBesideWhatIsAllowed) {
  std::vector<Json> rows = study();
  rows[1]["gate_errors"]["logits"] = nullptr;  // it was not finite
  const TextTable table = gate_table(ablation_lines(rows));
  EXPECT_EQ(table[1][3], "not finite, of 2.0e-05");
  EXPECT_EQ(table[2][4], "2.0e-06 of 1.0e-04");
  EXPECT_EQ(table[2][2], "w");
}

TEST(AblationTables, OfTwoRowsOfOnePlaceTheLaterCounts) {
  std::vector<Json> rows = study();
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

// What is taken away from all combined is compared with them, and stands in a table of its own.
TEST(AblationTables, AllButOneIsComparedWithAll) {
  std::vector<Json> rows = study();
  Json without = row("without", "bf16", 15, 6);
  without["switches"] = {"fused_rope"};
  without["baseline_samples"] = samples(10);
  rows.push_back(without);
  std::vector<AblationLine> lines = ablation_lines(rows);
  TextTable table = without_table(lines);
  ASSERT_EQ(table.size(), 2U);
  EXPECT_EQ(table[1][0], "-bf16");
  EXPECT_EQ(table[1][column(table, "against all")], "0.67x");
  EXPECT_EQ(table[1][column(table, "of all")], "1.50x") << "of the 4 MiB of all combined";
  EXPECT_EQ(speedup_table(lines).size(), 9U) << "and not in the others'";
  EXPECT_TRUE(says(ablation_sentences(lines), "most missed when taken away from all combined: bf16, 10."));
  rows.back()["raw_samples"] = samples(5);
  lines = ablation_lines(rows);
  EXPECT_TRUE(says(ablation_sentences(lines), "all combined is faster without bf16"));
  EXPECT_TRUE(says(ablation_sentences(lines), "none makes the step significantly slower"));
}

TEST(AblationTables, RanksAreComparedWithTheirOwnBaseline) {
  std::vector<Json> rows = study();
  Json ranks = row("ranks", "fsdp", 12, 4);
  ranks["ranks"] = 2;
  ranks["preset"] = "baseline";
  ranks["baseline_samples"] = samples(6);
  ranks["baseline_peak_bytes"] = 8 * 0x1p20;
  rows.push_back(ranks);
  const std::vector<AblationLine> lines = ablation_lines(rows);
  const TextTable table = ranks_table(lines);
  EXPECT_EQ(table[1][0], "fsdp, 2 ranks");
  EXPECT_EQ(table[1][column(table, "against ddp:naive")], "0.50x");
  EXPECT_EQ(table[1][column(table, "of ddp:naive's")], "0.50x");
  EXPECT_TRUE(says(ablation_sentences(lines), "fsdp, 2 ranks of one device (baseline preset)"));
  EXPECT_TRUE(without_table(lines).size() < 2);
}

// A bar ends where its label says, and the whisker around it.
TEST(AblationTables, WhiskersHoldTheRatioOfTheirBar) {
  std::vector<Json> rows = study();
  rows[1]["baseline_samples"] = samples(48);
  const BarChart chart = speedup_chart(ablation_lines(rows));
  const Bar& bar = chart.bars.at(1);
  ASSERT_TRUE(bar.spread && bar.value);
  EXPECT_LE(bar.spread->first, *bar.value);
  EXPECT_GE(bar.spread->second, *bar.value);
  EXPECT_NE(bar_chart_svg(chart).find("<path d="), std::string::npos);
  EXPECT_FALSE(chart.bars.at(0).spread) << "the baseline is not compared with itself";
}

}  // namespace
}  // namespace kiln
