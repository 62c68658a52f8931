// A schema makes the JSON of a row, its cells in tables and its CSV, and reads rows stored under former keys.
#include "rows/schema.h"

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json_reader.h"

namespace kiln {
namespace {

struct Timed {
  std::string size = "nano";
  std::optional<double> p50_ms = 12.5;
  double peak = 3 * 0x1p20;
  int ranks = 2;
};

const Schema<Timed> kSchema = {
    {"size", "size", Unit::text, field<&Timed::size>, Where::table},
    {"p50_ms", "ms p50", Unit::milliseconds,
     [](const Timed& t) { return t.p50_ms ? Json(*t.p50_ms) : Json(); }, Where::table, "median_ms"},
    {"peak_bytes", "peak MiB", Unit::bytes, field<&Timed::peak>, Where::wide, "peak"},
    {"ranks", "ranks", Unit::count, field<&Timed::ranks>, Where::differs},
};

const ColumnForm& form(std::string_view key) {
  for (const ColumnForm& c : kSchema.forms())
    if (c.key == key) return c;
  throw std::out_of_range(std::string(key));
}

Json stored(const char* text) { return parse_json(text, {}, "a row"); }

TEST(Schema, ARowHasTheKeysItHasFiguresFor) {
  EXPECT_EQ(kSchema.row({}).dump(), R"({"size":"nano","p50_ms":12.5,"peak_bytes":3145728.0,"ranks":2})");
  const Json without = kSchema.row({.size = "tiny", .p50_ms = {}, .peak = 0, .ranks = 1});
  EXPECT_FALSE(without.contains("p50_ms"));
  const Schema<Timed> always = {
      or_null(Column<Timed>{"p50_ms", "ms p50", Unit::milliseconds, [](const Timed&) { return Json(); }})};
  EXPECT_EQ(always.row({}).dump(), R"({"p50_ms":null})");
  EXPECT_EQ((always + kSchema).forms().size(), kSchema.forms().size() + 1);
}

TEST(Schema, OldRowsAreReadUnderTheKeyTheyWereStoredWith) {
  const Json old = stored(R"({"size": "nano", "median_ms": 7, "peak": 1048576})");
  ASSERT_NE(value_at(old, form("p50_ms")), nullptr);
  EXPECT_EQ(value_at(old, form("p50_ms"))->get<double>(), 7);
  EXPECT_EQ(cell_text(old, form("p50_ms")), "7");
  EXPECT_EQ(cell_text(old, form("peak_bytes")), "1.00");
  EXPECT_EQ(value_at(old, form("ranks")), nullptr);
  EXPECT_EQ(cell_text(old, form("ranks")), "-");
  // Where a row has both, today's counts.
  const Json both = stored(R"({"p50_ms": 8, "median_ms": 7})");
  EXPECT_EQ(value_at(both, form("p50_ms"))->get<double>(), 8);
  EXPECT_EQ(value_at(stored(R"({"p50_ms": null})"), form("p50_ms")), nullptr);
}

TEST(Schema, ATableShowsWhatDiffersAndWhatWasAskedFor) {
  const std::vector<Json> alike = {kSchema.row({}), kSchema.row({.size = "tiny"})};
  EXPECT_EQ(row_table(kSchema.forms(), alike).lines.front(), (std::vector<std::string>{"size", "ms p50"}));
  EXPECT_EQ(row_table(kSchema.forms(), alike, {.wide = true}).lines.front(),
            (std::vector<std::string>{"size", "ms p50", "peak MiB", "ranks"}));
  const std::vector<Json> other = {kSchema.row({}), kSchema.row({.ranks = 4})};
  const RowTable table = row_table(kSchema.forms(), other);
  EXPECT_EQ(table.left, 1U);
  EXPECT_EQ(table.lines, (std::vector<std::vector<std::string>>{
                             {"size", "ms p50", "ranks"}, {"nano", "12.5", "2"}, {"nano", "12.5", "4"}}));
}

TEST(Schema, CsvHasEveryValueUnderItsKey) {
  const std::vector<Json> rows = {kSchema.row({}), stored(R"({"size": "tiny", "median_ms": 7})")};
  const auto lines = row_csv(kSchema.forms(), rows);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], (std::vector<std::string>{"size", "p50_ms", "peak_bytes", "ranks"}));
  EXPECT_EQ(lines[1][1], "12.5");
  EXPECT_EQ(lines[2][1], "7");
  EXPECT_EQ(lines[2][3], "");
}

TEST(Schema, UnitsReadAsPeopleWriteThem) {
  const auto cell = [](double value, Unit unit) {
    Json row = Json::object();
    row["x"] = value;
    return cell_text(row, {"x", "x", unit});
  };
  EXPECT_EQ(cell(1234.5, Unit::milliseconds), "1234");
  EXPECT_EQ(cell(0.012345, Unit::milliseconds), "0.01235");
  EXPECT_EQ(cell(1500, Unit::seconds), "1.50");
  EXPECT_EQ(cell(0.123, Unit::share), "12.3 %");
  EXPECT_EQ(cell(0.126, Unit::percent), "13 %");
  EXPECT_EQ(cell(1.837, Unit::times), "1.84x");
  EXPECT_EQ(cell(4.56e6, Unit::rate), "4.56M");
  EXPECT_EQ(cell(20 * 0x1p20, Unit::bytes), "20");
}

}  // namespace
}  // namespace kiln
