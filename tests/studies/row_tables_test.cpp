#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "rows/row_values.h"
#include "studies/op/op_studies.h"
#include "studies/op/render.h"
#include "studies/row_tables.h"
#include "studies/step/render.h"
#include "studies/step/step_studies.h"
#include "studies/sweep/variance_table.h"
#include "studies/warmup/warmup_tables.h"

namespace kiln {
namespace {

Json step_row(const char* dtype, int ctx, double ms, double predicted) {
  Json samples = Json::array();
  for (int i = 0; i < 8; ++i) samples.push_back(ms * (1 + 0.001 * i));
  return {{"gate", "passed"},
          {"size", "small"},
          {"mode", "full"},
          {"dtype", dtype},
          {"ctx", ctx},
          {"batch", 4},
          {"preset", "optimized"},
          {"params", 1000},
          {"p50_ms", ms},
          {"mean_ms", ms},
          {"forward_ms", ms / 3},
          {"backward_ms", 2 * ms / 3},
          {"raw_samples", samples},
          {"predicted_ms", predicted},
          {"floor_ms", predicted},
          {"peak_bytes", ctx * 1000}};
}

TEST(StepStudies, PrecisionsAreComparedRowByRow) {
  std::vector<Json> rows = {step_row("fp32", 128, 10, 8), step_row("bf16", 128, 5, 2),
                            step_row("fp32", 256, 21, 16), step_row("bf16", 512, 30, 20)};
  std::vector<RowPair> pairs = step_pairs(rows);
  ASSERT_EQ(pairs.size(), 1U) << "rows of other contexts are no pair";
  EXPECT_NEAR(pairs[0].achieved.ratio, 2, 1e-9);
  EXPECT_EQ(pairs[0].achieved.significance, Comparison::Significance::faster);
  EXPECT_EQ(pairs[0].own_roofline, 4);
  const TextTable table = pair_table(pairs);
  EXPECT_EQ(table[1][4], "fp32 to bf16 (optimized)");
  EXPECT_EQ(table[1][9], "2.00x");
  rows[1] = step_row("bf16", 128, 10.002, 2);  // no faster any more, and the table says so
  EXPECT_NE(pair_table(step_pairs(rows))[1][9].find("(same: p "), std::string::npos);
  rows[1]["gate"] = "no memory";
  EXPECT_TRUE(step_pairs(rows).empty());
}

TEST(StepStudies, PresetsArePairsThoughTheirGraphsDiffer) {
  Json base = step_row("bf16", 128, 10, 8), best = step_row("bf16", 128, 5, 4);
  base["preset"] = "baseline";
  base["graph"] = "off";
  best["graph"] = "captured";
  EXPECT_EQ(step_pairs(std::vector<Json>{base, best}).size(), 1U);
  best["clip"] = 1;
  EXPECT_TRUE(step_pairs(std::vector<Json>{base, best}).empty());
}

TEST(StepStudies, ExponentsStandBesideThosePredicted) {
  std::vector<Json> rows;
  for (int ctx : {128, 256, 512}) rows.push_back(step_row("fp32", ctx, ctx * ctx * 1e-3, ctx * 1e-2));
  std::vector<ScalingLaw> scaling_fits = step_scaling(rows);
  ASSERT_EQ(scaling_fits.size(), 1U);
  EXPECT_EQ(scaling_fits[0].over, "ctx");
  EXPECT_NEAR(scaling_fits[0].measured.exponent, 2, 1e-9);
  EXPECT_NEAR(scaling_fits[0].own_roofline->exponent, 1, 1e-9);
  EXPECT_EQ(scaling_table(scaling_fits)[1][3], "2.00");
  rows[2]["p50_ms"] = 100.0;
  EXPECT_NE(scaling_table(step_scaling(rows))[1][3], "2.00");
  rows[0]["size"] = "tiny";  // no fit over rows that differ in two options
  rows[0]["params"] = 10;
  EXPECT_EQ(step_scaling(rows).at(0).at.size(), 2U);
}

Json op_row(const char* variant, const char* pass, int rows, double ms, double bytes) {
  Json samples = Json::array();
  for (int i = 0; i < 8; ++i) samples.push_back(ms * (1 + 0.001 * i));
  return {{"gate", "passed"},
          {"op", "swiglu"},
          {"variant", variant},
          {"pass", pass},
          {"dtype", "fp32"},
          {"p50_ms", ms},
          {"bytes", bytes},
          {"predicted_ms", ms / 2},
          {"floor_ms", 0.5},
          {"raw_samples", samples},
          {"shape", {{"rows", rows}, {"cols", 8}}}};
}

TEST(OpStudies, ALadderClimbsFromTheSlowest) {
  std::vector<Json> rows = {
      op_row("fused", "forward", 64, 1, 100),    op_row("fused", "backward", 64, 2, 100),
      op_row("naive", "forward", 64, 4, 300),    op_row("naive", "backward", 64, 8, 500),
      op_row("composed", "forward", 64, 2, 300), op_row("composed", "backward", 64, 4, 300),
      op_row("half", "forward", 64, 9, 1)};
  const std::vector<Ladder> ladders = op_ladders(rows);
  ASSERT_EQ(ladders.size(), 1U);
  ASSERT_EQ(ladders[0].steps.size(), 3U) << "a variant without a backward has no step";
  EXPECT_EQ(ladders[0].steps[0].variant, "naive");
  EXPECT_EQ(ladders[0].steps[2].variant, "fused");
  EXPECT_NEAR(ladders[0].steps[2].over_last, 2, 1e-9);
  EXPECT_NEAR(ladders[0].steps[2].over_first, 4, 1e-9);
  EXPECT_TRUE(ladders[0].steps[2].won_every_pass);
  const TextTable table = ladder_table(ladders[0]);
  EXPECT_EQ(table[3][0], "fused");
  EXPECT_NEAR(ladders[0].steps[0].roofline_ms, 1.5, 1e-9) << "of fused: 1 / 2 + 2 / 2";
  EXPECT_EQ(table[3].back(), "4.00x");
  EXPECT_EQ(table[3][7], "0.0002") << "MB moved";
  EXPECT_EQ(table[3][8], "75 %") << "of naive's 800 bytes saved";
  rows[1] = op_row("fused", "backward", 64, 4.5, 100);  // slower backward than the composed one
  EXPECT_NE(ladder_table(op_ladders(rows)[0]).at(3).at(9).find("not in every pass"), std::string::npos);
}

TEST(OpStudies, FusingPaysFromSomeSizeOn) {
  std::vector<Json> rows;
  for (int n : {1, 2, 4, 8}) {
    rows.push_back(op_row("naive", "forward", n, 1 + 2.0 * n, 1));
    rows.push_back(op_row("composed", "forward", n, 100, 1));
    rows.push_back(op_row("fused", "forward", n, 4 + n, 1));
  }
  std::vector<OpCrossover> all = op_crossovers(rows);
  ASSERT_EQ(all.size(), 1U) << "columns never change";
  EXPECT_EQ(all[0].over, "rows");
  EXPECT_EQ(crossover_table(all)[1][5], "pays from rows = 3 (between 2 and 4)");
  EXPECT_EQ(crossover_table(all)[1].back(), "0.60x to 1.42x") << "of the rooflines: 3 / 5 to 17 / 12";
  rows[2]["predicted_ms"] = 0.5;
  EXPECT_EQ(crossover_table(op_crossovers(rows))[1].back(), "0.83x to 3.00x");
  EXPECT_EQ(crossovers_json(op_crossovers(rows)).at(0).at("points").at(0).at("own_roofline_speedup"), 3);
  for (Json& row : rows) {
    if (row["variant"] == "composed") row["p50_ms"] = 0.1;  // another way to do without is always faster
  }
  EXPECT_EQ(op_crossovers(rows)[0].found.kind, Crossover::Kind::never);
}

TEST(CommonColumns, ShowTheWordsThatTellRowsApart) {
  std::vector<Json> rows = {step_row("fp32", 128, 10, 8), step_row("bf16", 128, 5, 2)};
  rows[0]["grid"] = {{"dtype", "fp32"}};
  rows[1]["grid"] = {{"dtype", "bf16"}};
  rows[0]["batch"] = 10;
  rows[1]["batch"] = 20;
  rows.push_back({{"status", "timeout"}, {"grid", {{"dtype", "fp16"}}}});
  const auto columns = columns_of("a command of long ago");
  const RowTable t = row_table(columns, rows, {.axes = {"dtype"}});
  EXPECT_EQ(t.left, 2U) << "the batch follows from the dtype here, and is no column";
  EXPECT_EQ(t.lines[0][0], "dtype");
  EXPECT_EQ(t.lines[0][1], "gate");
  EXPECT_EQ(t.lines[1][1], "passed");
  EXPECT_EQ(t.lines[3][1], "-");
  EXPECT_EQ(t.lines[0][2], "ms p50");
  EXPECT_EQ(t.lines[2][2], "5");
  EXPECT_EQ(t.lines[3][2], "timeout");
  for (const char* name : {"predicted ms", "roofline ms"})
    EXPECT_NE(std::find(t.lines[0].begin(), t.lines[0].end(), name), t.lines[0].end()) << name;
  const RowTable free = row_table(columns, std::span(rows).first(2));
  EXPECT_EQ(free.lines[0][0], "dtype");
  EXPECT_EQ(free.lines[0][1], "batch");
}

TEST(CommonColumns, ACommandThatStatesItsOwnHasThoseWhateverItsCell) {
  EXPECT_EQ(columns_of("bench op rms_norm").data(), op_columns().data());
  EXPECT_EQ(columns_of("bench step").data(), step_columns().data());
  EXPECT_EQ(columns_of("bench flash").data(), columns_of("bench leaderboard flash").data());
  // The grid's keys come first, in a spreadsheet too; sizes by name are a word there.
  Json row = {
      {"op", "add"}, {"shape", {{"rows", 4}, {"cols", 8}}}, {"p50_ms", 1.5}, {"grid", {{"rows", "4"}}}};
  const auto csv = row_csv(op_columns(), std::vector<Json>{row}, {"rows"});
  ASSERT_EQ(csv.size(), 2U);
  EXPECT_EQ(csv[0][0], "rows");
  EXPECT_EQ(csv[1][0], "4");
  const auto shape = std::find(csv[0].begin(), csv[0].end(), "shape") - csv[0].begin();
  EXPECT_EQ(csv[1].at(static_cast<std::size_t>(shape)), "rows=4,cols=8");
}

Json warmup_row(int warmups, std::vector<double> steps) {
  const std::vector<double> samples(steps.begin() + warmups, steps.end());
  double mean = 0;
  for (double s : samples) mean += s / static_cast<double>(samples.size());
  return {{"gate", "passed"},
          {"size", "nano"},
          {"ctx", 8},
          {"warmups", warmups},
          {"steps_ms", steps},
          {"raw_samples", samples},
          {"mean_ms", mean},
          {"std_ms", 0.1},
          {"verdict", "stable"},
          {"first_step",
           {{"excess_ms", 50.0},
            {"module_load_ms", 30.0},
            {"rest_ms", 20.0},
            {"steady_ms", 2.0},
            {"context_ms", 7.0}}}};
}

TEST(WarmupTables, StepsAndPartsComeFromTheRows) {
  std::vector<Json> rows = {warmup_row(0, {52, 2, 2.1, 2.2, 2.3}), warmup_row(1, {50, 2, 2.1, 2.2, 2.3})};
  TextTable t = warmup_table(rows);
  EXPECT_EQ(t[1][2], "52 2 2.1 2.2 2.3");
  EXPECT_EQ(t[2][2], "(50) 2 2.1 2.2 2.3");
  EXPECT_NE(t[1].back().find("+463.7 %"), std::string::npos) << t[1].back();
  EXPECT_EQ(t[2].back(), "-");
  TextTable first = first_step_table(rows);
  EXPECT_EQ(first[1], (std::vector<std::string>{"context: device start-up", "7", "before it"}));
  EXPECT_EQ(first[2][2], "60 %");
  rows[0]["first_step"]["module_load_ms"] = 45.0;
  EXPECT_EQ(first_step_table(rows)[2][2], "90 %");
}

constexpr const char* kOptions[] = {"dtype", "ctx", "batch"};

TEST(VarianceShares, EachOptionHasWhatItExplainsByItself) {
  // Time = ctx^2 x 3 for fp32: logarithms add up, so that nothing is left for their interaction.
  std::vector<Json> rows;
  for (int ctx : {128, 256, 512}) {
    for (const char* dtype : {"fp32", "bf16"}) {
      const double ms = ctx * ctx * (std::string_view(dtype) == "fp32" ? 3.0 : 1.0);
      rows.push_back(step_row(dtype, ctx, ms, ctx));
    }
  }
  std::vector<VarianceShare> shares = variance_shares(rows, kOptions);
  ASSERT_EQ(shares.size(), 3U) << "batch does not vary";
  const double over_ctx = 2 * std::pow(2 * std::log(2.0), 2) / 3;  // of logs -1, 0, 1 times 2 log 2
  const double over_dtype = std::pow(std::log(3.0) / 2, 2);
  EXPECT_EQ(shares[0].factor, "ctx");
  EXPECT_EQ(shares[0].levels, 3U);
  EXPECT_NEAR(shares[0].measured, over_ctx / (over_ctx + over_dtype), 1e-12);
  EXPECT_NEAR(shares[0].own_roofline, 1, 1e-12);
  EXPECT_EQ(shares[1].factor, "dtype");
  EXPECT_NEAR(shares[1].measured, over_dtype / (over_ctx + over_dtype), 1e-12);
  EXPECT_NEAR(shares[2].measured, 0, 1e-12);
  EXPECT_EQ(variance_table(shares)[2][0], "dtype");
  rows[0]["p50_ms"] = 1e9;  // one cell apart: an option by itself no longer explains it
  shares = variance_shares(rows, kOptions);
  EXPECT_GT(shares.back().measured, 0.1);
  EXPECT_EQ(variance_json(shares).back().at("option"), "options together");
}

TEST(VarianceShares, NeedAWholeGridOfTwoOptions) {
  std::vector<Json> rows = {step_row("fp32", 128, 10, 8), step_row("bf16", 128, 5, 2),
                            step_row("fp32", 256, 21, 16)};
  EXPECT_TRUE(variance_shares(rows, kOptions).empty());
  rows.push_back(step_row("bf16", 256, 9, 4));
  EXPECT_EQ(variance_shares(rows, kOptions).size(), 3U);
  rows.back()["gate"] = "no memory";
  EXPECT_TRUE(variance_shares(rows, kOptions).empty());
  rows.resize(2);
  EXPECT_TRUE(variance_shares(rows, kOptions).empty());
  EXPECT_TRUE(variance_shares({}, kOptions).empty());
}

}  // namespace
}  // namespace kiln
