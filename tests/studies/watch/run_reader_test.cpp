// A run's folder, read while it is written: torn lines, files that are replaced, lines that are none.
#include "studies/watch/run_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/json_reader.h"
#include "studies/watch/dashboard.h"
#include "studies/watch/run_summary.h"
#include "studies/watch/screen.h"
#include "support/temp_folder.h"
#include "train/run/run_folder.h"

namespace kiln {
namespace {

std::string step_line(int64_t step, double loss, double at) {
  return Json({{"step", step},
               {"loss", loss},
               {"lr", 1e-3},
               {"grad_norm", 0.5},
               {"skipped", false},
               {"seconds", 0.01},
               {"tokens", 1000},
               {"host_wait_ms", 1.0},
               {"at", at},
               {"peak_bytes", 4096}})
             .dump() +
         "\n";
}

class RunReaderTest : public testing::Test {
 protected:
  void append(const std::string& text) const {
    std::ofstream(folder_.path() + "/metrics.jsonl", std::ios::app) << text;
  }
  void write_facts(int64_t steps, const std::string& model = "nano") const {
    const Json page = {{"options", {{"steps", steps}, {"model", model}, {"precision", "fp32"}, {"ranks", 1}}},
                       {"machine", {{"device", "cpu"}, {"peak_flops", 1e9}}},
                       {"model", {{"parameters", 1000}}},
                       {"step_flops", 1e6},
                       {"predicted_step_ms", 8.0},
                       {"predicted_peak_bytes", 4096},
                       {"first_step", 0}};
    std::ofstream(folder_.path() + "/run.json") << page.dump();
  }
  TempFolder folder_;
};

TEST_F(RunReaderTest, ALineIsReadWhenItIsWhole) {
  RunReader reader(folder_.path());
  EXPECT_FALSE(reader.refresh());
  const std::string line = step_line(1, 6.5, 100);
  append(line.substr(0, 20));
  EXPECT_FALSE(reader.refresh());
  EXPECT_FALSE(reader.tally().last);
  append(line.substr(20));
  EXPECT_TRUE(reader.refresh());
  ASSERT_TRUE(reader.tally().last);
  EXPECT_EQ(reader.tally().last->step, 1);
  EXPECT_FALSE(reader.refresh());
  EXPECT_EQ(reader.tally().lines, 1);
}

TEST_F(RunReaderTest, AFileThatWasReplacedIsReadAgain) {
  RunReader reader(folder_.path());
  for (int i = 1; i <= 5; ++i) append(step_line(i, 7.0 - i, 100 + i));
  (void)reader.refresh();
  EXPECT_EQ(reader.tally().last->step, 5);
  const std::string path = folder_.path() + "/metrics.jsonl";
  std::ofstream(path + ".new") << step_line(1, 9, 200) << step_line(2, 8, 201);
  std::filesystem::rename(path + ".new", path);
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.tally().last->step, 2);
  EXPECT_EQ(reader.tally().first_loss, 9);
  EXPECT_EQ(reader.tally().lines, 2);
}

TEST_F(RunReaderTest, LinesThatAreNoneAreCounted) {
  append(step_line(1, 6, 1) + "garbage\n{\"half\": \n" + std::string(3 << 20, 'x') + "\n" +
         step_line(2, 5, 2));
  RunReader reader(folder_.path());
  (void)reader.refresh();
  EXPECT_EQ(reader.tally().last->step, 2);
  EXPECT_EQ(reader.tally().unreadable, 3);
}

TEST_F(RunReaderTest, SummaryHasTheFiguresOfTheRun) {
  write_facts(40);
  for (int i = 1; i <= 30; ++i) append(step_line(i, 7.0 - 0.1 * i, 100 + 0.02 * i));
  append(R"({"step":30,"validation_loss":4.5,"tokens":10})"
         "\n");
  RunReader reader(folder_.path());
  (void)reader.refresh();
  const RunSummary s = summarize_run(reader);
  EXPECT_EQ(s.state, RunState::stopped);  // nobody holds the folder
  EXPECT_NEAR(*s.step_ms, 10, 1e-9);
  EXPECT_NEAR(*s.tokens_per_s, 1e5, 1e-6);
  EXPECT_NEAR(*s.of_peak, 0.1, 1e-9);  // 1e6 operations in 10 ms, of 1e9 a second
  EXPECT_NEAR(*s.data_wait, 0.1, 1e-9);
  EXPECT_NEAR(*s.prediction_error(), -0.2, 1e-9);
  ASSERT_TRUE(s.left);
  EXPECT_NEAR(s.left->seconds, 0.2, 1e-6);  // ten steps, 20 ms from one to the next
  const Json json = summary_json(s);
  EXPECT_EQ(json.at("validation_loss"), 4.5);
  EXPECT_EQ(json.at("state"), "stopped");
  EXPECT_TRUE(json.at("loss_scale").is_null());
  // The page's document is JSON, and has every curve.
  const Json page = Json::parse(dashboard_data(reader));
  EXPECT_EQ(page.at("curves").at("loss").at("mean").size(), 30U);
  EXPECT_EQ(page.at("curves").at("validation").at("mean").at(std::size_t{0}), 4.5);
  EXPECT_EQ(page.at("curves").at("step_ms").at("first").size(), 29U);  // without the first, which warms up
}

TEST_F(RunReaderTest, AHeldFolderIsARunThatTrains) {
  write_facts(40);
  append(step_line(1, 6, 1));
  RunReader reader(folder_.path());
  (void)reader.refresh();
  EXPECT_EQ(summarize_run(reader).state, RunState::stopped);
  {
    const RunFolder held(folder_.path());
    EXPECT_EQ(summarize_run(reader).state, RunState::training);
  }
  EXPECT_EQ(summarize_run(reader).state, RunState::stopped);
  append(step_line(40, 6, 1));
  (void)reader.refresh();
  EXPECT_EQ(summarize_run(reader).state, RunState::finished);
}

std::size_t characters_of(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & '\xc0') != '\x80'; }));
}

TEST_F(RunReaderTest, TheScreenFitsItsTerminal) {
  write_facts(1000000, "a\x1b[31mname" + std::string(200, 'n'));
  for (int i = 1; i <= 2000; ++i) append(step_line(i, 7.0 + std::sin(i), 100 + i));
  append("garbage\n");
  RunReader reader(folder_.path());
  (void)reader.refresh();
  const RunSummary s = summarize_run(reader);
  for (const bool unicode : {true, false}) {
    for (const auto& [width, height] : {std::pair{80, 24}, {79, 23}, {100, 50}, {200, 60}, {80, 10}}) {
      const std::string screen = watch_screen(s, reader.curves(), {width, height, unicode});
      EXPECT_LE(std::count(screen.begin(), screen.end(), '\n'), std::max(height, 12)) << screen;
      std::istringstream lines(screen);
      for (std::string line; std::getline(lines, line);)
        EXPECT_LE(characters_of(line), static_cast<std::size_t>(width)) << line;
      EXPECT_EQ(screen.find('\x1b'), std::string::npos);
      EXPECT_NE(screen.find("1 unreadable line"), std::string::npos) << screen;
      if (!unicode) {
        EXPECT_TRUE(std::none_of(screen.begin(), screen.end(), [](char c) { return c < 0; })) << screen;
      }
    }
  }
  EXPECT_EQ(watch_line(s).find('\n'), std::string::npos);
}

TEST(ThinCurve, KeepsMeanLeastAndMostOfEverything) {
  ThinCurve curve(16);
  double sum = 0;
  for (int i = 1; i <= 1000; ++i) {
    const double v = std::cos(i);
    curve.add(i, v);
    sum += v;
  }
  curve.add(1001, NAN);
  EXPECT_LE(curve.bins().size(), 16U);
  double all = 0, least = 1, most = -1;
  int64_t count = 0, before = 0;
  for (const CurveBin& b : curve.bins()) {
    EXPECT_EQ(b.first, before + 1);
    before = b.last;
    all += b.sum;
    count += b.count;
    least = std::min(least, b.least);
    most = std::max(most, b.most);
  }
  EXPECT_EQ(count, 1000);
  EXPECT_NEAR(all, sum, 1e-9);
  EXPECT_LT(least, -0.99);
  EXPECT_GT(most, 0.99);
}

TEST(TimeLeft, IsTheMeanOfRecentStepsAndItsErrorGrowsWithTheirSpread) {
  std::deque<RecentStep> even, uneven;
  for (int i = 0; i < 64; ++i) {
    even.push_back({i, 0.1, 10, 0, MetricsLine::kNone});
    uneven.push_back({i, i % 16 < 8 ? 0.05 : 0.15, 10, 0, MetricsLine::kNone});
  }
  EXPECT_FALSE(time_left({}, 100));
  EXPECT_FALSE(time_left(even, 0));
  const auto a = time_left(even, 100), b = time_left(uneven, 100);
  ASSERT_TRUE(a && b);
  EXPECT_NEAR(a->seconds, 10, 1e-9);
  EXPECT_NEAR(a->error, 0, 1e-6);
  EXPECT_GT(b->error, 1);
  // What lies between two steps counts: a validation after every tenth of them.
  std::deque<RecentStep> paused;
  double at = 0;
  for (int i = 0; i < 81; ++i) paused.push_back({i, 0.1, 10, 0, at += i % 10 == 9 ? 0.6 : 0.1});
  EXPECT_NEAR(time_left(paused, 100)->seconds, 15, 0.7);
}

}  // namespace
}  // namespace kiln
