// The files of a report from stores as they are found: torn, mixed, hostile, being written.
#include "studies/report/report_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/build_info.h"
#include "base/error.h"
#include "support/ablation_rows.h"
#include "support/has.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ReportOf : public testing::Test {
 protected:
  ReportOf()
      : folder_(testing::TempDir() + "kiln_report_" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ReportOf() override { fs::remove_all(folder_); }
  void store(const std::string& text) {
    std::ofstream(folder_ + "/results.jsonl", std::ios::binary | std::ios::app) << text;
  }
  void store(const std::vector<Json>& rows) {
    for (const Json& row : rows) store(row.dump() + "\n");
  }
  std::string html(const std::string& writeup = {}) {
    return content(make_report_files(folder_, folder_, writeup).written[1]);
  }

  std::string folder_;
};

Json step(double ms) {
  Json r = ablation_rows::row("", "", ms, 4);
  r["command"] = "bench step";
  r["status"] = "ok";
  r["mode"] = "full";
  r["preset"] = "optimized";
  return r;
}

TEST_F(ReportOf, NothingSaysWhatToDo) {
  EXPECT_THROW(make_report_files(folder_, folder_), Error) << "no file";
  store("");
  EXPECT_THROW(make_report_files(folder_, folder_), Error) << "no row";
  store("\n\n");
  EXPECT_THROW(make_report_files(folder_, folder_), Error);
}

TEST_F(ReportOf, ATornLineLeavesTheRest) {
  store({step(8)});
  store(std::string("{\"command\": \"bench st"));
  const std::string page = html();
  EXPECT_TRUE(has(page, "cut off after")) << "it is said";
  EXPECT_TRUE(has(page, "Steps (<code>bench step</code>)"));
}

TEST_F(ReportOf, ARunBeingWrittenIsReadToItsLastWholeLine) {
  store({step(8), step(9)});
  store(std::string("{\"command\": \"bench step\", \"size\""));
  EXPECT_NO_THROW(html());
  store({step(7)});  // the other process writes on
  EXPECT_NO_THROW(html());
}

TEST_F(ReportOf, RowsOfSeveralBuildsAndOfALaterKilnAreSaid) {
  std::vector<Json> rows = {step(8), step(9), step(7)};
  rows[1]["build_id"] = "b2";
  rows[2]["schema"] = 99;
  rows[2]["p50_ms"] = Json::object();
  rows[2]["host"] = Json::array({1});
  rows[2]["something"] = "new";
  store(rows);
  const std::string page = html();
  EXPECT_TRUE(has(page, "rows of 2 builds: b1; b2"));
  EXPECT_TRUE(has(page, "class=\"mark bad\">stale<")) << "none of them is this build's";
}

TEST_F(ReportOf, MarkupAndBrokenTextInRowsStaysText) {
  Json row = step(8);
  for (const char* key : {"size", "dtype", "device", "preset", "ctx"})
    row[key] = "<script>alert(1)</script>|`x`";
  row["host"]["device_name"] = "</style><img src=x onerror=alert(2)>";
  row["build_id"] = "\xff\xfe<b>";
  store({row});
  store(
      std::string("{\"command\":\"memory\",\"size\":\"\xc3\x28<svg "
                  "onload=x>\",\"phase\":\"full\",\"predicted_peak_bytes\":9,\"floor_bytes\":3}\n"));
  const std::string page = html();
  for (const char* tag : {"<script", "<img src=x", "<svg onload", "<b>"}) EXPECT_FALSE(has(page, tag)) << tag;
  EXPECT_TRUE(has(page, "&lt;script&gt;"));
}

TEST_F(ReportOf, PicturesOutsideOfTheFolderAreNotTaken) {
  std::ofstream(testing::TempDir() + "kiln_secret.svg") << "<svg>secret</svg>";
  fs::create_directories(folder_ + "/memory");
  std::ofstream(folder_ + "/memory/own.svg") << "<svg>own</svg>";
  Json row = {
      {"command", "memory"},
      {"size", "nano"},
      {"phase", "full"},
      {"dtype", "fp32"},
      {"predicted_peak_bytes", 9.0e6},
      {"floor_bytes", 3.0e6},
      {"build_id", "b1"},
      {"files",
       {testing::TempDir() + "kiln_secret.svg", "../kiln_secret.svg", "/etc/passwd", "memory/own.svg"}}};
  store({row});
  const ReportFiles report = make_report_files(folder_, folder_);
  bool own = false;
  for (const NamedChart& c : charts_of(report.page.document)) {
    EXPECT_FALSE(has(c.svg, "secret")) << c.name;
    own = own || has(c.svg, "own");
  }
  EXPECT_TRUE(own);
}

TEST_F(ReportOf, RunsBesideTheRowsHaveTheirCurves) {
  store({step(8)});
  fs::create_directories(folder_ + "/one\xff<b>");
  std::ofstream(folder_ + "/one\xff<b>/metrics.jsonl")
      << "{\"step\":1,\"loss\":5.5}\nnot a "
         "line\n{\"step\":2,\"loss\":4.25,\"validation_loss\":4.5}\n{\"step\":3,\"lo";
  const std::string page = html();
  EXPECT_TRUE(has(page, "loss 5.500 at the first step, 4.250 at step 2, 4.500 on the validation text"))
      << page;
  EXPECT_FALSE(has(page, "one\xff") || has(page, "<b>"));
  EXPECT_TRUE(has(page, "1 stored rows, 1 of them below")) << "a run is no stored row";
}

TEST_F(ReportOf, AWriteupHasItsChaptersAlone) {
  store({step(8)});
  const std::string page = html("profiling");
  EXPECT_TRUE(has(page, "End-to-end benchmarking"));
  EXPECT_FALSE(has(page, "id=\"sharding\""));
  EXPECT_TRUE(fs::exists(folder_ + "/writeup-profiling.md"));
  EXPECT_TRUE(has(html("sharding"), "id=\"sharding\""));
}

TEST_F(ReportOf, ChartsOfAnEarlierReportGo) {
  store(ablation_rows::study());
  html();
  ASSERT_TRUE(fs::exists(folder_ + "/report/optimizations-speedup.svg"));
  std::ofstream(folder_ + "/report/mine.svg") << "<svg/>";
  fs::remove(folder_ + "/results.jsonl");
  store({step(8)});
  html();
  EXPECT_FALSE(fs::exists(folder_ + "/report/optimizations-speedup.svg"));
  EXPECT_TRUE(fs::exists(folder_ + "/report/mine.svg")) << "what is not ours stays";
}

TEST_F(ReportOf, AThousandRowsStaySmall) {
  std::vector<Json> rows;
  for (int i = 0; i < 1000; ++i) {
    rows.push_back(step(5 + i % 7));
    rows.back()["ctx"] = 64 + i;
    rows.back()["build_id"] = build_info().build_id;
  }
  store(rows);
  EXPECT_LT(html().size(), 5u << 20);
}

}  // namespace
}  // namespace kiln
