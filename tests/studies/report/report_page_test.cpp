// The page changes with the rows, and rows that differ stay apart in it.
#include "studies/report/report_page.h"

#include <gtest/gtest.h>

#include "support/ablation_rows.h"
#include "support/has.h"

namespace kiln {
namespace {

using namespace ablation_rows;

std::string markdown(const ReportPage& page) { return document_markdown(page.document, "report"); }
std::string markdown(std::span<const Json> rows) { return markdown(make_report(rows, {})); }

std::string chart(const ReportPage& page, std::string_view name) {
  for (const NamedChart& c : charts_of(page.document))
    if (c.name == name) return c.svg;
  return {};
}

TEST(ReportPage, TablesAndChartsChangeWithTheRows) {
  std::vector<Json> rows = study();
  const ReportPage page = make_report(rows, {"a line was left out"});
  EXPECT_EQ(page.rows, 8U);
  EXPECT_EQ(page.studies, 1U);
  EXPECT_TRUE(has(markdown(page), "- a line was left out\n"));
  EXPECT_TRUE(has(markdown(page), "### Ablation 1: tiny, batch 2, context 64"));
  EXPECT_TRUE(has(markdown(page), "On cpu (Machine), build b1."));
  EXPECT_TRUE(has(markdown(page), "| +bf16 | 10 |"));
  EXPECT_TRUE(has(markdown(page), "![speed-up of every row](report/ablation-1-speedup.svg)"));
  EXPECT_TRUE(has(markdown(page), "measured 2026-01-02T03:04:05Z to 2026-01-02T03:04:05Z"));
  rows[5] = row("added", "bf16", 5, 4);
  const ReportPage other = make_report(rows, {});
  EXPECT_TRUE(has(markdown(other), "| +bf16 | 5 |"));
  EXPECT_TRUE(has(markdown(other), "20 to 5 ms: 4.00x"));
  EXPECT_NE(chart(other, "ablation-1-speedup"), chart(page, "ablation-1-speedup"));
  EXPECT_EQ(chart(other, "ablation-1-memory"), chart(page, "ablation-1-memory")) << "its memory is the same";
}

TEST(ReportPage, SeveralMachinesAndBuildsAreSaidAndKeptApart) {
  std::vector<Json> rows = study();
  for (Json r : study()) {
    r["study"] = "s2";
    r["host"]["device_name"] = "Other";
    r["build_id"] = "b2";
    rows.push_back(r);
  }
  const ReportPage page = make_report(rows, {});
  EXPECT_EQ(page.studies, 2U);
  EXPECT_NE(chart(page, "ablation-2-memory"), "");
  EXPECT_TRUE(has(markdown(page), "rows of 2 machines: cpu (Machine); cpu (Other)"));
  EXPECT_TRUE(has(markdown(page), "rows of 2 builds: b1; b2"));
  EXPECT_TRUE(has(markdown(page), "On cpu (Other), build b2."));
}

Json step_row(const char* dtype, double ms) {
  Json r = row("", "", ms, 4);
  r["command"] = "bench step";
  r["status"] = "ok";
  r["mode"] = "full";
  r["preset"] = "optimized";
  r["dtype"] = dtype;
  return r;
}

TEST(ReportPage, StepsAndMemoryHaveTheirTables) {
  Json memory = {{"command", "memory"},
                 {"size", "tiny"},
                 {"phase", "full"},
                 {"dtype", "fp32"},
                 {"batch", 4},
                 {"ctx", 64},
                 {"device", "meta"},
                 {"floor_bytes", 0x1p20},
                 {"predicted_peak_bytes", 3 * 0x1p20},
                 {"measured_peak_bytes", nullptr}};
  std::vector<Json> rows = {
      step_row("fp32", 10), step_row("bf16", 4), step_row("bf16", 5), memory, {{"command", "profile"}}};
  ReportPage page = make_report(rows, {});
  EXPECT_EQ(page.rows, 3U) << "of a row that was measured again the later counts, and profile has no table";
  EXPECT_TRUE(has(markdown(page), "5 stored rows, 3 of them below"));
  EXPECT_TRUE(has(markdown(page), "| tiny | bf16 | 64 | optimized | 5 |"));
  EXPECT_TRUE(has(markdown(page), "fp32 to bf16 (optimized)"));
  EXPECT_TRUE(has(markdown(page), "| tiny | full | fp32 | 4 | 64 | 3.00 | 1.00 | 3.00x |"));
  EXPECT_FALSE(has(markdown(page), "machines")) << "a prediction is no machine's";
  const std::string before = chart(page, "steps-1");
  rows[1] = rows[2] = step_row("bf16", 8);
  page = make_report(rows, {});
  EXPECT_NE(chart(page, "steps-1"), before);
  rows[2]["status"] = "oom";
  rows[2]["gate"] = "not-verified";
  rows[2].erase("p50_ms");
  EXPECT_TRUE(has(markdown(rows), "| OOM |"));
}

TEST(ReportPage, TimesThatWereComparedWithNothingAreLeftOut) {
  std::vector<Json> rows = {step_row("fp32", 10), step_row("bf16", 5)};
  rows[1]["gate"] = "not-verified";
  ReportPage page = make_report(rows, {});
  EXPECT_EQ(page.rows, 1U);
  EXPECT_FALSE(has(markdown(page), "| bf16 |"));
  EXPECT_FALSE(has(markdown(page), "Comparisons:"));
  EXPECT_TRUE(has(markdown(page), "- 1 row was compared with nothing (gate not-verified): left out"));
  rows[0].erase("status");  // as an earlier kiln stored it, which passed it without a check
  EXPECT_EQ(make_report(rows, {}).rows, 0U);
}

TEST(ReportPage, RowsThatDifferAreKeptAndToldApart) {
  Json some = step_row("fp32", 10), other = step_row("fp32", 12);
  some["clip"] = other["clip"] = 1.0;
  some["vocab"] = 256;
  other["vocab"] = 512;
  std::vector<Json> rows = {some, other};
  std::string page = markdown(rows);
  EXPECT_TRUE(has(page, "| ctx | vocab | preset | ms p50 |")) << page;
  EXPECT_TRUE(has(page, "| 64 | 512 | optimized | 12 |"));
  EXPECT_FALSE(has(page, "clip")) << "all have the same";
  EXPECT_FALSE(has(page, "measured again"));
  EXPECT_TRUE(has(chart(make_report(rows, {}), "steps-1"), "vocab 512"));
  rows[1]["vocab"] = 256;
  rows[1]["tuned"] = "table";
  EXPECT_TRUE(has(markdown(rows), "| preset | tuned | ms p50 |"));
  rows[1].erase("tuned");
  rows[1]["variant_set"] = "attention=flash";
  EXPECT_TRUE(has(markdown(rows), "| preset | variant_set | ms p50 |"));
  rows[1].erase("variant_set");
  const ReportPage merged = make_report(rows, {});
  EXPECT_EQ(merged.rows, 1U);
  EXPECT_TRUE(has(markdown(merged), "- 1 row was measured again later: only the latest of each is shown"));
  rows[0]["host"]["threads"] = 1;
  rows[1]["host"]["threads"] = 2;
  page = markdown(rows);
  EXPECT_TRUE(has(page, "On cpu (Machine), 1 thread, build b1."));
  EXPECT_TRUE(has(page, "On cpu (Machine), 2 threads, build b1."));
  EXPECT_FALSE(has(page, "measured again"));
}

TEST(ReportPage, RowsOfAnyShapeAreSurvived) {
  const std::vector<Json> rows = {
      {{"command", "ablate"}},
      {{"command", "ablate"}, {"group", 5}, {"gate", Json::array()}, {"raw_samples", "x"}},
      {{"command", "bench step"}, {"host", 3}, {"p50_ms", "fast"}},
      {{"command", "memory"}, {"floor_bytes", 0}},
      {{"command", 7}},
      Json::object()};
  EXPECT_GT(make_report(rows, {}).rows, 0U);
  EXPECT_EQ(make_report({}, {}).rows, 0U);
}

}  // namespace
}  // namespace kiln
