// The viewer page: its numbers say what the timeline says, names cannot leave their place, and a million
// spans are written quickly.
#include "report/html/timeline_html.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>

#include "base/json.h"
#include "report/export/chrome_trace.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

std::string page_of(const Timeline& t) {
  std::string page;
  write_timeline_html(t, [&page](std::string_view piece) { page += piece; });
  return page;
}

std::string between(const std::string& text, const std::string& from, const std::string& to) {
  const std::size_t begin = text.find(from) + from.size();
  return text.substr(begin, text.find(to, begin) - begin);
}

Json head_of(const std::string& page) {
  return Json::parse(between(page, "<script id=\"head\" type=\"application/json\">", "</script>"));
}

std::vector<uint64_t> numbers_of(const std::string& page) {
  const std::string text = between(page, "<script id=\"numbers\" type=\"text/plain\">", "</script>");
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    group = group << 6 | static_cast<uint32_t>(alphabet.find(c));
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(group >> bits & 0xff);
  }
  std::vector<uint64_t> numbers;
  uint64_t n = 0;
  int shift = 0;
  for (const char c : bytes) {
    n |= static_cast<uint64_t>(c & 0x7f) << shift;
    shift += 7;
    if ((c & 0x80) != 0) continue;
    numbers.push_back(n);
    n = 0;
    shift = 0;
  }
  return numbers;
}

TEST(TimelineHtml, ItsNumbersAreTheSpansLaneByLane) {
  Timeline t("a step", 2);
  const int cpu = t.add_lane("CPU"), gpu = t.add_lane("GPU"), none = t.add_lane("nothing");
  (void)none;
  t.add_span(gpu, "kernel", "matmul", 1002, 5);
  t.add_span(cpu, "outer", "range", 1000, 100);
  t.add_span(cpu, "inner", "norm", 1000, 2.5, {{"scope", "layers.0"}});
  t.add_span(cpu, "inner", "norm", 1e6 + 1000, 2.5, {{"scope", "layers.0"}});
  t.add_counter("memory", 1001, 300);
  t.add_counter("memory", 1003, 100);
  const std::string page = page_of(t);
  const Json head = head_of(page);
  EXPECT_EQ(head.at("title"), "a step");
  EXPECT_EQ(head.at("lanes").dump(), R"([["CPU",3],["GPU",1],["nothing",0]])");
  ASSERT_EQ(head.at("details").size(), 3U);  // what is alike is there once
  const std::vector<uint64_t> numbers = numbers_of(page);
  const std::vector<uint64_t> expected = {0,    100000,     1,    0,  2500,
                                          2,    1000000000, 2500, 2,     // CPU: outer first
                                          2000, 5000,       0,           // GPU
                                          1000, 600,        2000, 399};  // 300, then 200 less
  EXPECT_EQ(numbers, expected);
}

TEST(TimelineHtml, NamesCannotLeaveTheirPlace) {
  Timeline t("</script><script>alert(1)</script>");
  const int lane = t.add_lane("<b>lane</b>");
  t.add_span(lane, "</script><img src=x>", "<!--", 0, 1, {{"</script>", "<script>"}});
  t.add_span(lane, "not UTF-8: \xff\xfe", "", 1, 1);
  const std::string page = page_of(t);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(page.find("<b>lane"), std::string::npos);
  EXPECT_EQ(head_of(page).at("title"), "</script><script>alert(1)</script>");
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(page.find("src=\"http"), std::string::npos);
}

TEST(TimelineHtml, AnEmptyOneIsStillAPage) {
  const std::string page = page_of(Timeline("nothing"));
  EXPECT_EQ(head_of(page).at("spans"), 0);
  EXPECT_TRUE(numbers_of(page).empty());
}

TEST(TimelineHtml, BothFilesOfAMillionSpansAreWritten) {
  Timeline t("a million");
  const int lane = t.add_lane("CPU");
  std::vector<uint32_t> details;
  for (int i = 0; i < 200; ++i)
    details.push_back(t.detail(std::to_string(i), "matmul", {{"scope", "layers." + std::to_string(i)}}));
  for (int i = 0; i < 1'000'000; ++i)
    t.add_span(lane, details[static_cast<std::size_t>(i % 200)], 3.0 * i, 2.125);
  const TempFolder folder;
  const std::clock_t begin = std::clock();  // computing, not waiting: tests run beside others
  const std::string page = write_timeline_files(t, folder / "x.trace.json");
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_EQ(page, folder / "x.html");
  std::printf("a million spans written in %.2f s of computing\n", seconds);
  const std::string trace = folder.read("x.trace.json");
  EXPECT_EQ(std::count(trace.begin(), trace.end(), '\n'), 1'000'000 + 5);
  EXPECT_LT(folder.read("x.html").size(), std::size_t{12} << 20);
}

}  // namespace
}  // namespace kiln
