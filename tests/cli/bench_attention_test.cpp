#include "studies/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "studies/attention/render.h"
#include "support/gpu.h"

namespace kiln::cli {
namespace {

using Status = RowStatus;

AttentionRequest little_request(std::vector<AttentionCell> cells) {
  AttentionRequest r;
  r.command = "bench flash";
  r.table = "grid";
  r.cells = std::move(cells);
  r.variants = {"naive", "auto"};
  r.passes = {AttentionPass::forward, AttentionPass::backward, AttentionPass::both};
  r.clock.flush = 4096;
  r.clock.timing = {.warmups = 1, .min_samples = 4, .max_samples = 4, .min_seconds = 0, .max_seconds = 5};
  r.device = Device::cpu();
  r.threads = 1;
  return r;
}

AttentionReport run(const AttentionRequest& r) {
  check_attention_request(r);
  return bench_attention(r, [](const std::string&) {});
}

std::string text(const AttentionReport& report) { return written(attention_page(report), PageFormat::text); }

const NamedBytes* needed(const AttentionRow& row, std::string_view what) {
  const auto found = std::find_if(row.plan.needed.begin(), row.plan.needed.end(),
                                  [&](const NamedBytes& n) { return n.what == what; });
  return found == row.plan.needed.end() ? nullptr : &*found;
}

TEST(AttentionCells, CountTheSeenPairs) {
  const AttentionCell causal{2, 3, 5, 7, DType::bf16, true, false};
  EXPECT_EQ(causal.pairs(), 2 * 3 * 15);
  EXPECT_EQ(causal.least(AttentionPass::forward).flops, 4.0 * 7 * 90);
  EXPECT_EQ(causal.least(AttentionPass::backward).flops, 2.5 * 4 * 7 * 90);
  EXPECT_EQ(causal.least(AttentionPass::both).flops, 3.5 * 4 * 7 * 90);
  AttentionCell full = causal;
  full.causal = false;
  EXPECT_EQ(full.pairs(), 2 * 3 * 25);
  // q, k, v, o in two bytes and one float a row.
  EXPECT_EQ(full.least(AttentionPass::forward).bytes, 4.0 * 2 * 2 * 3 * 5 * 7 + 4 * 2 * 3 * 5);
  // The figure the leaderboard is known by.
  const AttentionCell board{1, 16, 16384, 64, DType::bf16, true, false};
  EXPECT_NEAR(board.least(AttentionPass::both).flops / 1e12, 1.924, 0.001);
}

TEST(AttentionCells, TablesAreThoseOfTheReferences) {
  const auto tokens = tokens16k_cells({DType::bf16});
  EXPECT_EQ(tokens.size(), 18U);
  for (const AttentionCell& c : tokens) {
    EXPECT_EQ(c.batch * c.seq, 16384) << c.str();
    EXPECT_EQ(c.heads * c.d, c.d == 80 ? 2000 : 2048) << c.str();
    EXPECT_FALSE(c.packed);
  }
  const auto steps = step_cells({DType::bf16, DType::f32});
  EXPECT_EQ(steps.size(), 8U);
  EXPECT_EQ(steps[2], (AttentionCell{4, 32, 512, 80, DType::bf16, true, true}));
  EXPECT_TRUE(std::all_of(steps.begin(), steps.end(), [](const AttentionCell& c) { return c.packed; }));
  EXPECT_EQ(grid_cells({2, 3, {5, 6}, {7}, {DType::f32, DType::bf16}, false}).size(), 4U);
}

TEST(BenchAttention, FiguresFollowFromEachOther) {
  AttentionRequest r = little_request({{2, 3, 19, 16, DType::f32, true, false}});
  r.scaling_fits = true;
  const AttentionReport report = run(r);
  ASSERT_EQ(report.rows.size(), 2U);
  const Json page = attention_page(report).json;
  EXPECT_EQ(page.at("command"), "bench flash");
  EXPECT_EQ(page.at("clock").at("flush_bytes"), 4096);
  EXPECT_GT(page.at("ceilings").at("copy_gb_per_s"), 0);
  EXPECT_TRUE(page.at("not_timed").empty());
  for (const Json& row : page.at("rows")) {
    SCOPED_TRACE(row.at("variant").get<std::string>());
    EXPECT_EQ(row.at("gate"), "passed");
    EXPECT_EQ(row.at("auto").get<bool>(), row.at("variant") != "naive");
    EXPECT_LE(row.at("relative_error"), row.at("allowed_error"));
    EXPECT_EQ(row.at("checked_queries"), 2 * 3 * 19);
    EXPECT_EQ(row.at("all_queries"), 2 * 3 * 19);
    EXPECT_EQ(row.at("before_backward_bytes"), row.at("predicted_before_backward_bytes"));
    EXPECT_EQ(row.at("peak_bytes"), row.at("predicted_peak_bytes"));
    const double forward = row.at("passes").at("forward").at("flops").get<double>();
    for (const auto& [name, share] : {std::pair("forward", 1.0), {"backward", 2.5}, {"both", 3.5}}) {
      const Json& pass = row.at("passes").at(name);
      EXPECT_EQ(pass.at("samples"), 4);
      EXPECT_EQ(pass.at("flops"), share * forward);
      const double p50 = pass.at("p50_ms").get<double>();
      EXPECT_GT(p50, 0);
      EXPECT_NEAR(pass.at("tflops").get<double>() * p50 * 1e9, share * forward, 1e-3);
      EXPECT_GT(pass.at("roofline_ms"), 0);
      EXPECT_GT(pass.at("of_ceiling"), 0);
      if (row.at("variant") == "naive") {
        EXPECT_EQ(pass.at("speedup_over_naive"), 1);
      } else {
        EXPECT_GT(pass.at("speedup_over_naive"), 0);
        EXPECT_NEAR(pass.at("own_roofline_ms").get<double>(), pass.at("roofline_ms").get<double>(), 1e-9);
      }
    }
    const Json& passes = row.at("passes");
    EXPECT_NEAR(passes.at("both").at("roofline_ms").get<double>(),
                passes.at("forward").at("roofline_ms").get<double>() +
                    passes.at("backward").at("roofline_ms").get<double>(),
                1e-12);
  }
  // One line for each pass of each variant, with the samples.
  const std::vector<std::string> lines = attention_result_lines(report);
  ASSERT_EQ(lines.size(), 6U);
  const Json line = Json::parse(lines[1]);
  EXPECT_EQ(line.at("pass"), "backward");
  EXPECT_EQ(line.at("raw_samples").size(), 4U);
  for (const char* key :
       {"command", "op", "variant", "device", "dtype", "seq", "d", "causal", "p50_ms", "tflops",
        "roofline_ms", "build_id", "host", "time", "gate", "packed", "table", "flush_bytes"})
    EXPECT_TRUE(line.contains(key)) << key;
  for (const PageFormat format : {PageFormat::text, PageFormat::markdown}) {
    const std::string text = written(attention_page(report, /*wide=*/true), format);
    for (const char* word : {"forward", "ms p50", "roofline ms"})
      EXPECT_NE(text.find(word), std::string::npos) << text;
  }
  const std::string csv = written(attention_page(report), PageFormat::csv);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 7);
}

TEST(BenchAttention, PackedCellsAreCheckedAndTimedAsTheModelCallsThem) {
  AttentionRequest r =
      little_request({{2, 2, 13, 8, DType::bf16, true, true}, {1, 2, 13, 8, DType::bf16, false, true}});
  const AttentionReport report = run(r);
  ASSERT_EQ(report.rows.size(), 4U);
  for (const AttentionRow& row : report.rows) {
    ASSERT_TRUE(row.timed()) << row.reason;
    EXPECT_NE(needed(row, "qkv"), nullptr);
    EXPECT_EQ(needed(row, "q"), nullptr);
    EXPECT_EQ(needed(row, "dqkv")->bytes, needed(row, "qkv")->bytes);
    EXPECT_EQ(row.measured.peak, row.plan.memory.peak);
  }
}

TEST(BenchAttention, MemoryGrowsAsTheFitPredicts) {
  AttentionRequest r = little_request({{2, 3, 64, 16, DType::bf16, true, false}});
  r.device = Device::meta();
  r.scaling_fits = true;
  const AttentionReport report = run(r);
  ASSERT_TRUE(report.planned);
  ASSERT_EQ(report.scaling_fits.size(), 2U);
  EXPECT_NEAR(report.scaling_fits[0].square, 2 * 3 * 2, 0.01);        // probabilities, in two bytes
  EXPECT_NEAR(report.scaling_fits[0].linear, 5 * 2 * 3 * 16 * 2, 1);  // q, k, v, o, do
  EXPECT_NEAR(report.scaling_fits[1].square, 0, 0.01);
  EXPECT_NEAR(report.scaling_fits[1].linear, 5 * 2 * 3 * 16 * 2 + 2 * 3 * 4, 1);  // and a float a row
  EXPECT_NE(text(report).find(" + 12.0 B x seq^2"), std::string::npos) << text(report);
}

// A variant for a few queries is the default there, and cannot be asked for its memory at thousands.
TEST(BenchAttention, ShortSequencesHaveNoFitWhereTheirVariantTakesNoLongOnes) {
  AttentionRequest r = little_request({{1, 2, 4, 8, DType::f32, true, false}});
  r.variants = {"auto", "naive"};
  r.scaling_fits = true;
  const AttentionReport report = run(r);
  ASSERT_EQ(report.rows.size(), 2U);
  EXPECT_TRUE(report.rows[0].timed()) << report.rows[0].reason;
  EXPECT_EQ(report.scaling_fits.size(), 1U) << "naive alone";
}

TEST(BenchAttention, MetaPlansWithoutRunning) {
  AttentionRequest r = little_request(tokens16k_cells({DType::bf16}));
  r.device = Device::meta(DeviceType::cuda);
  const AttentionReport report = run(r);
  ASSERT_EQ(report.rows.size(), 36U);
  for (const AttentionRow& row : report.rows) {
    EXPECT_EQ(row.status, Status::modelled);
    EXPECT_GT(row.plan.memory.peak, row.plan.memory.before_backward);
  }
  EXPECT_TRUE(attention_result_lines(report).empty());
  EXPECT_EQ(attention_page(report).json.at("rows").size(), 36U);
}

TEST(BenchAttention, TooLittleMemoryIsARowWithItsAccounting) {
  AttentionRequest r = little_request({{1, 1, 1024, 16, DType::f32, true, false}});
  r.memory_cap = {std::size_t{3} << 20};  // the probabilities alone take four
  const AttentionReport report = run(r);
  ASSERT_EQ(report.rows.size(), 2U);
  EXPECT_EQ(report.rows[0].status, Status::oom);
  EXPECT_TRUE(report.rows[1].timed()) << report.rows[1].reason;
  EXPECT_EQ(needed(report.rows[0], "probs")->bytes, std::size_t{4} << 20);
  EXPECT_FALSE(report.rows[1].speedups[0]);
  const Json row = attention_page(report).json.at("not_timed").at(0);
  EXPECT_EQ(row.at("status"), "oom");
  EXPECT_EQ(row.at("gate"), "not-verified");
  EXPECT_EQ(row.at("available_bytes"), 3 << 20);
  EXPECT_EQ(row.at("needed_by_tensor").at("probs"), 4 << 20);
  EXPECT_EQ(row.at("needed_by_tensor").at("dq+dk+dv"), 3 * 1024 * 16 * 4);
  const std::string page = text(report);
  EXPECT_NE(page.find("  OOM  "), std::string::npos) << page;
  EXPECT_NE(page.find("by tensor: q 64.00 KiB, "), std::string::npos) << page;
  EXPECT_NE(page.find("probs 4.00 MiB"), std::string::npos) << page;
  const std::vector<std::string> lines = attention_result_lines(report);
  ASSERT_EQ(lines.size(), 4U);  // the row without memory is kept too
  EXPECT_EQ(Json::parse(lines[0]).at("status"), "oom");

  r.device = Device::meta();
  EXPECT_EQ(run(r).rows[0].status, Status::oom);
  EXPECT_EQ(run(r).rows[1].status, Status::modelled);
}

TEST(BenchAttention, WhatCannotRunIsUnsupportedAndOneThatIsWrongIsNotStored) {
  AttentionRequest r = little_request({{1, 1, 40, 8, DType::f64, true, false}});
  r.variants = {"flash", "auto", "naive"};
  r.passes = {AttentionPass::both};
  AttentionReport report = run(r);
  ASSERT_EQ(report.rows.size(), 2U);  // auto is naive here
  EXPECT_EQ(report.rows[0].status, Status::unsupported);
  EXPECT_EQ(report.rows[1].variant, "naive");
  EXPECT_TRUE(report.rows[1].automatic);
  EXPECT_NE(text(report).find("unsupported: flash, "), std::string::npos) << text(report);
  report.rows[1].fail_gate("y is off by 1.0e-01");
  EXPECT_EQ(attention_result_lines(report).size(), 1U);
  EXPECT_EQ(attention_page(report).json.at("not_timed").at(1).at("gate"), "failed");
  EXPECT_NE(text(report).find("WRONG: naive, "), std::string::npos) << text(report);
}

TEST(BenchAttention, NaiveIsSkippedWhereItWouldTakeLongUnlessAskedFor) {
  AttentionRequest r = little_request({{1, 8, 4096, 256, DType::f32, false, false}});  // 480 GFLOP
  r.variants = {"naive"};
  r.clock.flush = 0;
  const AttentionReport report = run(r);
  EXPECT_EQ(report.rows[0].status, Status::skipped);
  EXPECT_NE(report.rows[0].reason.find("--variant naive times it"), std::string::npos)
      << report.rows[0].reason;
}

TEST(BenchAttention, TheLeaderboardPrintsBothFloors) {
  AttentionRequest r = little_request({{1, 2, 33, 8, DType::bf16, true, false}});
  r.variants = {"auto"};
  r.passes = {AttentionPass::both};
  r.clock.warmup_seconds = 0.01;
  r.datasheet = 1e12;
  const AttentionReport report = run(r);
  const double flops = r.cells[0].least(AttentionPass::both).flops;
  const Json row = attention_page(report).json.at("rows").at(0);
  EXPECT_NEAR(row.at("datasheet_floor_ms").get<double>(), flops / 1e9, 1e-12);
  EXPECT_FALSE(row.at("passes").contains("forward"));
  EXPECT_NE(text(report).find("of the datasheet, "), std::string::npos) << text(report);
}

TEST(BenchAttention, RefusesVariantsThatDoNotExist) {
  AttentionRequest r = little_request({{1, 1, 4, 4, DType::f32, true, false}});
  r.variants = {"flsh"};
  EXPECT_THROW(check_attention_request(r), Error);
}

TEST(CudaBenchAttention, TimesWithAColdCacheAndTheMemoryMetaPredicted) {
  KILN_NEEDS_GPU();
  AttentionRequest r = little_request({{2, 4, 300, 64, DType::bf16, true, true},
                                       {1, 1, 513, 128, DType::bf16, true, false},
                                       {1, 2, 257, 32, DType::f32, false, false}});
  r.device = Device::cuda();
  r.clock.flush = flush_bytes(r.device);
  EXPECT_GT(r.clock.flush, std::size_t{1} << 24);
  for (bool wait_each : {false, true}) {
    r.clock.wait_each = wait_each;
    const AttentionReport report = run(r);
    ASSERT_GE(report.rows.size(), 3U);
    for (const AttentionRow& row : report.rows) {
      ASSERT_TRUE(row.timed()) << row.reason;
      EXPECT_EQ(row.measured.peak, row.plan.memory.peak) << row.variant;
      EXPECT_EQ(row.measured.before_backward, row.plan.memory.before_backward) << row.variant;
      EXPECT_GT(row.timing(AttentionPass::both)->p50, 0);
    }
  }
}

}  // namespace
}  // namespace kiln::cli
