// The SVG and the page: what they show comes from the events.
#include <gtest/gtest.h>

#include "base/json.h"
#include "data/base64.h"
#include "report/charts/memory_svg.h"
#include "report/html/memory_html.h"
#include "support/has.h"
#include "support/memory_events.h"

namespace kiln {
namespace {

std::string page_of(const MemoryRecord& r, const std::string& title) {
  std::string text;
  write_memory_html(r, analyse(r), title, [&](std::string_view part) { text += part; });
  return text;
}

std::string between(const std::string& text, std::string_view from, std::string_view to) {
  const auto a = text.find(from) + from.size();
  return text.substr(a, text.find(to, a) - a);
}

TEST(MemorySvg, ShowsPhasesTagsAndThePeak) {
  MemoryRecord r = small_record();
  const std::string svg = memory_svg(r, analyse(r), "a <title> & more");
  EXPECT_TRUE(has(svg, "a &lt;title&gt; &amp; more"));
  for (const char* part :
       {">setup<", ">forward<", ">backward<", "param 4.00 KiB", "activation 1.50 KiB",
        "peak, forward 5.50 KiB", "backward 5.00 KiB", ">step 1<", "6 allocations and frees"})
    EXPECT_TRUE(has(svg, part)) << part;
  EXPECT_FALSE(has(svg, ">update<"));
  r.events[5].bytes = 8192;
  const std::string other = memory_svg(r, analyse(r), "t");
  EXPECT_TRUE(has(other, "peak, backward 12.50 KiB"));
  r.timed = true;
  EXPECT_TRUE(has(memory_svg(r, analyse(r), "t"), "time, 0.005 ms in total"));
  MemoryRecord empty;
  empty.scopes = {""};
  EXPECT_TRUE(has(memory_svg(empty, {}, "nothing"), "</svg>"));
}

TEST(MemoryPage, HoldsTheEventsAndNeedsNoNetwork) {
  const MemoryRecord r = small_record();
  const std::string page = page_of(r, "</script><b>odd title");
  EXPECT_FALSE(has(page, "http:") || has(page, "https:") || has(page, "src="));
  EXPECT_LT(
      page.find("<meta http-equiv=\"Content-Security-Policy\"\n content=\"default-src 'none'; script-src "
                "'unsafe-inline'; style-src 'unsafe-inline'\">"),
      page.find("<style>"))
      << "a policy holds for what comes after it";
  const Json head = Json::parse(between(page, "<script id=\"head\" type=\"application/json\">", "</script>"));
  EXPECT_EQ(head.at("title"), "</script><b>odd title");
  EXPECT_EQ(head.at("events"), 6);
  EXPECT_EQ(head.at("peak"), Json::array({3, 5632}));
  EXPECT_EQ(head.at("before"), 0);
  EXPECT_EQ(head.at("runs"), Json::parse("[[0,0],[2,1],[4,3]]"));
  ASSERT_EQ(head.at("origins").size(), 4u);
  EXPECT_EQ(head["origins"][1],
            Json::array({"first (plain)", "layers.3.attention", "src/ops/one/one.cpp:7", 1, 4}));
  const std::string words =
      *from_base64(between(page, "<script id=\"lives\" type=\"text/plain\">", "</script>"));
  ASSERT_EQ(words.size(), 4u * 16);
  const auto word = [&](std::size_t i) {
    uint32_t w = 0;
    for (std::size_t b = 0; b < 4; ++b)
      w |= static_cast<uint32_t>(static_cast<unsigned char>(words[4 * i + b])) << (8 * b);
    return w;
  };
  EXPECT_EQ(word(4), 2u);  // the first activation: from event 2 to event 4, two units of 512 bytes
  EXPECT_EQ(word(5), 4u);
  EXPECT_EQ(word(6), 2u);
  EXPECT_EQ(word(7), 1u);
}

TEST(MemoryPage, AChangedEventChangesIt) {
  MemoryRecord r = small_record();
  const std::string before = page_of(r, "t");
  r.events[3].bytes = 2048;
  EXPECT_NE(page_of(r, "t"), before);
}

}  // namespace
}  // namespace kiln
