#include "report/tables/text_table.h"

#include <gtest/gtest.h>

#include "report/text/escape.h"

namespace kiln {
namespace {

const TextTable kTable = {
    {"op", "note", "ms"}, {"rms_norm", "a, \"b\"", "1.5"}, {"add", "50 % & more", "12"}};

TEST(TextTables, ColumnsStandUnderEachOther) {
  EXPECT_EQ(aligned(kTable, 2),
            "op        note          ms\n"
            "rms_norm  a, \"b\"       1.5\n"
            "add       50 % & more   12\n");
  EXPECT_EQ(aligned({{"µs", "x"}, {"12", "y"}}, 2), "µs  x\n12  y\n") << "bytes are not characters";
}

TEST(TextTables, MarkdownAlignsFiguresToTheRight) {
  EXPECT_EQ(markdown_table({{"a", "b"}, {"x", "1"}}, 1), "| a | b |\n|---|---:|\n| x | 1 |\n");
}

TEST(TextTables, LatexEscapesWhatItWouldTakeForACommand) {
  EXPECT_EQ(
      latex_table(kTable, 2),
      "\\begin{tabular}{llr}\n\\toprule\nop & note & ms \\\\\n\\midrule\n"
      "rms\\_norm & a, \"b\" & 1.5 \\\\\nadd & 50 \\% \\& more & 12 \\\\\n\\bottomrule\n\\end{tabular}\n");
  EXPECT_EQ(latex_escaped("a^b~\\{}$#<"),
            "a\\textasciicircum{}b\\textasciitilde{}\\textbackslash{}\\{\\}\\$\\#\\textless{}");
}

TEST(TextTables, CsvQuotesCommasAndQuotes) {
  EXPECT_EQ(csv_table(kTable), "op,note,ms\nrms_norm,\"a, \"\"b\"\"\",1.5\nadd,50 % & more,12\n");
}

TEST(TextTables, AFormatChoosesOneOfThem) {
  EXPECT_EQ(written(kTable, 2, PageFormat::text), aligned(kTable, 2));
  EXPECT_EQ(written(kTable, 2, PageFormat::markdown), markdown_table(kTable, 2));
  EXPECT_EQ(written(kTable, 2, PageFormat::latex), latex_table(kTable, 2));
  EXPECT_EQ(written(kTable, 2, PageFormat::csv), csv_table(kTable));
}

}  // namespace
}  // namespace kiln
