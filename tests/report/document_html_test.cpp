// A document as a page: complete by itself, and whatever its texts hold stays text.
#include "report/html/document_html.h"

#include <gtest/gtest.h>

#include "support/has.h"

namespace kiln {
namespace {

constexpr const char* kNasty = "<script>alert(1)</script><img src=x onerror=y> \"'& \xff `";

Document nasty() {
  Document d{.title = kNasty, .sections = {}};
  DocumentSection& head = d.sections.emplace_back();
  head.say({kNasty});
  DocumentSection& s = d.sections.emplace_back();
  s.anchor = kNasty;
  s.title = kNasty;
  s.mark = "stale";
  s.list({kNasty});
  s.tabulate({{"a", kNasty}, {kNasty, "1"}}, 1, {"missing"});
  s.draw({{"x", "<svg/>"}, kNasty});
  s.draw({{"y", "<svg><script>alert(2)</script></svg>"}, "foreign", /*foreign=*/true});
  s.command(kNasty);
  return d;
}

TEST(DocumentHtml, TextStaysText) {
  const std::string html = document_html(nasty());
  EXPECT_FALSE(has(html, "<script")) << html;
  EXPECT_FALSE(has(html, "<img src=x")) << html;
  EXPECT_FALSE(has(html, "\xff"));
  EXPECT_TRUE(has(html, "&lt;script&gt;alert(1)"));
  EXPECT_TRUE(has(html, "data:image/svg+xml;base64," + base64("<svg><script>alert(2)</script></svg>")))
      << "a picture from elsewhere is an image, in which no script runs";
  EXPECT_TRUE(has(html, "<figure role=\"img\" aria-label=\"&lt;script")) << html;
}

TEST(DocumentHtml, NeedsNothingElse) {
  const std::string html = document_html(nasty());
  EXPECT_TRUE(has(html, "default-src 'none'; style-src 'unsafe-inline'; img-src data:"));
  for (const char* outside : {"http://", "https://", "url(", "@import", "<link", "<iframe"})
    EXPECT_FALSE(has(html, outside)) << outside;
  for (const char* part : {"prefers-color-scheme: dark", "@media print", "<html lang=\"en\">", "</html>"})
    EXPECT_TRUE(has(html, part)) << part;
}

TEST(DocumentHtml, WhatIsWrongIsMarked) {
  const std::string html = document_html(nasty());
  EXPECT_TRUE(has(html, "<span class=\"mark bad\">stale</span>"));
  EXPECT_TRUE(has(html, "<tr class=\"bad\">"));
}

TEST(DocumentHtml, LongTablesAreFolded) {
  Document d{.title = "t", .sections = {}};
  TextTable table = {{"n"}};
  for (int i = 0; i < 100; ++i) table.push_back({std::to_string(i)});
  d.sections.emplace_back().tabulate(table, 1);
  const std::string html = document_html(d);
  EXPECT_TRUE(has(html, "<summary>60 more rows</summary>"));
  EXPECT_TRUE(has(html, "<td>99</td>")) << "they are there";
}

TEST(DocumentHtml, Base64) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
}

TEST(DocumentMarkdown, EscapesAndNamesItsCharts) {
  const std::string text = document_markdown(nasty(), "pictures");
  EXPECT_FALSE(has(text, "<script>alert(1)</script><img src=x onerror=y> \"'& \xff")) << text;
  EXPECT_TRUE(has(text, "](pictures/x.svg)"));
  EXPECT_EQ(charts_of(nasty()).size(), 2U);
}

}  // namespace
}  // namespace kiln
