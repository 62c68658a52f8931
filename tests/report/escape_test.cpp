// Rows say what they like; pages show it and obey none of it.
#include "report/text/escape.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "report/charts/bar_chart.h"
#include "report/charts/grouped_bars.h"
#include "report/charts/line_chart.h"
#include "report/tables/study_page.h"
#include "studies/report/report_page.h"
#include "support/has.h"

namespace kiln {
namespace {

// A device's name as nobody sane would choose it.
constexpr const char* kHostile =
    "a|b`c`<script>alert(1)</script>[x](http://evil.example/)\n\n# head\n\x1b[31m*b* \"q\" 'r' =1+1 \xff";

// Is `part` somewhere without a backslash before it?
bool bare(const std::string& text, std::string_view part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    if (at == 0 || text[at - 1] != '\\') return true;
  return false;
}

TEST(Escape, MarkdownHasNoMeaningLeft) {
  EXPECT_EQ(markdown_escaped("a|b`c`\n<b>[x](u)*y*"), "a\\|b\\`c\\` \\<b>\\[x\\](u)\\*y\\*");
  EXPECT_EQ(markdown_escaped("http://h www.h &lt; & more"), "http\\://h www\\.h \\&lt; & more");
  EXPECT_EQ(markdown_escaped("rms_norm _x_ 3:4"), "rms_norm \\_x\\_ 3:4") << "names stay readable";
  EXPECT_EQ(markdown_escaped("a\\|b"), "a\\\\\\|b") << "an escaped backslash does not free what follows";
  EXPECT_EQ(markdown_escaped("\x1b[2J\xff\t-"), " \\[2J\xef\xbf\xbd -");
}

TEST(Escape, SentencesKeepTheirCodeAlone) {
  EXPECT_EQ(markdown_sentence("run `make cuda` <b>"), "run `make cuda` \\<b>");
  EXPECT_EQ(markdown_sentence("one ` alone <b>"), "one \\` alone \\<b>");
  EXPECT_EQ(markdown_sentence("``a` <b> `c``"), "\\`\\`a` <b> `c\\`\\`")
      << "runs pair with runs of their length";
  EXPECT_EQ(markdown_sentence("# head"), "\\# head");
  EXPECT_EQ(markdown_sentence("- item"), "\\- item");
  EXPECT_EQ(markdown_sentence("-1.5 ms"), "-1.5 ms");
  EXPECT_EQ(markdown_sentence("a\n\n# b"), "a  # b") << "one line stays one";
}

TEST(Escape, NothingEndsAFenceFromInside) {
  EXPECT_EQ(markdown_fence("x"), "```\nx\n```\n");
  EXPECT_EQ(markdown_fence("a\n```\n<b>\n````\n"), "`````\na\n```\n<b>\n````\n`````\n");
}

TEST(Escape, SpreadsheetsSeeNoFormula) {
  EXPECT_EQ(csv_cell("=HYPERLINK(\"http://e\",\"x\")"), "\"'=HYPERLINK(\"\"http://e\"\",\"\"x\"\")\"");
  EXPECT_EQ(csv_cell("@SUM(A1)"), "'@SUM(A1)");
  EXPECT_EQ(csv_cell("-2+3+cmd|' /C calc'!A0"), "'-2+3+cmd|' /C calc'!A0");
  for (const char* figure : {"-1.5", "+0.3 %", "-", "-1e-07", "1.5x", "a=b", "rms_norm"})
    EXPECT_EQ(csv_cell(figure), figure);
  EXPECT_EQ(csv_cell("two\nlines"), "\"two\nlines\"");
}

TEST(Escape, LatexTakesNothingForACommand) {
  EXPECT_EQ(latex_escaped("[2]\\input{/etc/passwd}\n%"), "{[}2]\\textbackslash{}input\\{/etc/passwd\\} \\%");
  EXPECT_EQ(quoted_note("note\n\\input{x}", PageFormat::latex), "% note \\input{x}\n")
      << "a comment ends with its line";
}

TEST(Escape, XmlHasNeitherTagsNorAttributesNorWhatItForbids) {
  EXPECT_EQ(xml_escaped("<a href=\"x\" id='y'>&\x1b\xff"),
            "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp; \xef\xbf\xbd");
}

TEST(Escape, TerminalsSeeNoControlCharacters) {
  EXPECT_EQ(aligned({{"a", "b"}, {"\x1b[2Jx", "1"}}, 1), "a      b\n [2Jx  1\n");
  EXPECT_EQ(quoted_note("\x1b]0;title\x07 y\nz", PageFormat::text), " ]0;title  y\nz\n");
}

// The page of any study, in every form.
TEST(Escape, AStudysPageShowsHostileRowsAsText) {
  static constexpr ColumnForm kColumns[] = {{"name", "name", Unit::text, Where::table},
                                            {"ms", "ms", Unit::milliseconds, Where::table}};
  StudyPage page;
  page.title = page.place = kHostile;
  page.columns = kColumns;
  page.rows = {{{"name", kHostile}, {"ms", 1.5}}};
  page.notes = {kHostile};
  page.tables = {{kHostile, {{kHostile}, {kHostile}}, 1, false, {kHostile}}};
  const std::string markdown = written(page, PageFormat::markdown);
  EXPECT_FALSE(bare(markdown, "<script") || bare(markdown, "](") || bare(markdown, "://")) << markdown;
  EXPECT_FALSE(has(markdown, "\n# head") || has(markdown, "\x1b")) << markdown;
  EXPECT_TRUE(has(markdown, "\n| a\\|b\\`c\\`")) << "in a table code has no backticks: " << markdown;
  for (const PageFormat format : {PageFormat::text, PageFormat::latex}) {
    const std::string text = written(page, format);
    EXPECT_FALSE(has(text, "\x1b") || has(text, "\xff")) << text;
  }
  const std::string latex = written(page, PageFormat::latex);
  EXPECT_FALSE(has(latex, "\n# head")) << "what was in a comment must stay in it: " << latex;
  const std::string csv = written(page, PageFormat::csv);
  EXPECT_TRUE(has(csv, "\"\"q\"\"")) << csv;
}

TEST(Escape, ReportsShowHostileRowsAsText) {
  const std::vector<Json> rows = {{{"command", "bench step"},
                                   {"status", "ok"},
                                   {"gate", "passed"},
                                   {"size", kHostile},
                                   {"mode", "full"},
                                   {"dtype", "bf16"},
                                   {"device", kHostile},
                                   {"host", {{"device_name", kHostile}}},
                                   {"build_id", kHostile},
                                   {"time", kHostile},
                                   {"p50_ms", 4.5}}};
  const ReportPage page = make_report(rows, {kHostile});
  const std::string markdown = document_markdown(page.document, "report");
  EXPECT_FALSE(bare(markdown, "<script") || has(markdown, "\n# head")) << markdown;
  EXPECT_FALSE(bare(markdown, "](http") || bare(markdown, "://")) << markdown;
  const std::vector<NamedChart> charts = charts_of(page.document);
  ASSERT_FALSE(charts.empty());
  for (const NamedChart& chart : charts) {
    EXPECT_FALSE(has(chart.svg, "<script")) << chart.svg;
    EXPECT_FALSE(has(chart.svg, "\x1b") || has(chart.svg, "\xff"));
  }
}

TEST(Escape, ChartsShowHostileWordsAsText) {
  BarChart bars;
  bars.title = bars.marker = bars.axis = kHostile;
  bars.series = {kHostile};
  bars.bars = {{kHostile, 1.0, kHostile, 0.5, 0}};
  const LineChart lines{.title = kHostile,
                        .below_title = kHostile,
                        .x_label = kHostile,
                        .y_label = kHostile,
                        .x_ticks = {{1, kHostile}},
                        .lines = {{kHostile, 0, LineStyle::measured, {{1, 1}, {2, 2}}}}};
  const GroupedBars groups{.title = kHostile,
                           .below_title = kHostile,
                           .y_label = kHostile,
                           .unit = kHostile,
                           .reference = 1,
                           .series = {kHostile},
                           .groups = {{kHostile, {{2, 0}}}}};
  for (const std::string& svg : {bar_chart_svg(bars), line_chart_svg(lines), grouped_bars_svg(groups)}) {
    EXPECT_FALSE(has(svg, "<script") || has(svg, "\x1b") || has(svg, "\xff")) << svg;
    EXPECT_TRUE(has(svg, "&lt;script&gt;"));
  }
}

}  // namespace
}  // namespace kiln
