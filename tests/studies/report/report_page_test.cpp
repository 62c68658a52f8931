// The page changes with the rows, and rows that differ stay apart in it.
#include "studies/report/report_page.h"

#include <gtest/gtest.h>

#include "support/ablation_rows.h"
#include "support/has.h"

namespace kiln {
namespace {

using namespace ablation_rows;

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

TEST(ReportPage, RowsThatDifferAreKeptAndToldApart) {
  json some = step_row("fp32", 10), other = step_row("fp32", 12);
  some["clip"] = other["clip"] = 1.0;
  some["vocab"] = 256;
  other["vocab"] = 512;
  std::vector<json> rows = {some, other};
  std::string page = make_report(rows, {}, "report").markdown;
  EXPECT_TRUE(has(page, "| recompute | graph | vocab | ms p50 |")) << page;
  EXPECT_TRUE(has(page, "| - | - | 512 | 12 |"));
  EXPECT_FALSE(has(page, "clip")) << "all have the same";
  EXPECT_FALSE(has(page, "measured again"));
  EXPECT_TRUE(has(make_report(rows, {}, "report").pictures[0].svg, "vocab 512"));
  rows[1]["vocab"] = 256;
  rows[1]["tuned"] = "table";
  EXPECT_TRUE(has(make_report(rows, {}, "report").markdown, "| graph | tuned | ms p50 |"));
  rows[1].erase("tuned");
  rows[1]["variant_set"] = "attention=flash";
  EXPECT_TRUE(has(make_report(rows, {}, "report").markdown, "| graph | variant_set | ms p50 |"));
  rows[1].erase("variant_set");
  const ReportPage merged = make_report(rows, {}, "report");
  EXPECT_EQ(merged.rows, 1U);
  EXPECT_TRUE(has(merged.markdown, "- 1 row was measured again later: of each kind the latest is shown"));
  rows[0]["host"]["threads"] = 1;
  rows[1]["host"]["threads"] = 2;
  page = make_report(rows, {}, "report").markdown;
  EXPECT_TRUE(has(page, "On cpu (Machine), 1 thread, build b1."));
  EXPECT_TRUE(has(page, "On cpu (Machine), 2 threads, build b1."));
  EXPECT_FALSE(has(page, "measured again"));
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
