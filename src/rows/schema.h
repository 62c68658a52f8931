// What a kind of result row consists of, stated once: a table of columns. From it come the JSON of a row
// (for --json and results.jsonl), its line in tables for people, Markdown and LaTeX, its line of CSV, and the
// reading of rows that an earlier kiln stored. To add a column, add a line.
//
//   const Schema<StepRow> kStepSchema = {
//       {"size", "size", Unit::text, [](const StepRow& r) { return Json(r.size.name); }, Where::table},
//       {"p50_ms", "ms p50", Unit::milliseconds, field<&StepRow::p50_ms>, Where::table},
//       {"peak_bytes", "peak MiB", Unit::bytes, ..., Where::wide, "peak"},   // was "peak" in old rows
//   };
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace kiln {

// How a value of the JSON row is shown to people. The row itself keeps it as it is.
enum class Unit {
  text,          // words, yes or no, or sizes by name
  count,         // a whole number
  number,        // three or four digits that mean something
  milliseconds,  // four digits
  seconds,       // of a value in ms
  bytes,         // in MiB
  mebibytes,     // of bytes: in MiB to a hundredth, where bytes themselves are what is asked
  percent,       // of a fraction
  share,         // of a fraction: per cent to a tenth
  times,         // 1.84x
  rate,          // of a value per second: 12.3k, 4.56M
};

enum class Where {
  stored,   // in JSON and CSV alone
  wide,     // in tables with --wide, too
  differs,  // in tables where rows differ in it
  table,    // in every table
};

// How a column is shown and what it was called: all there is to know of it without the rows' own type.
struct ColumnForm {
  std::string_view key;    // in JSON, CSV and results.jsonl; empty: only shown, made by `text`
  std::string_view title;  // above its column
  Unit unit = Unit::text;
  Where where = Where::stored;
  std::string_view was = {};                       // its key in rows that were stored before it was renamed
  std::string (*text)(const Json& row) = nullptr;  // where a cell says more than one value
};

template <class Row>
struct Column {
  std::string_view key;
  std::string_view title;
  Unit unit = Unit::text;
  Json (*get)(const Row&) = nullptr;  // null: this row has no such value
  Where where = Where::stored;
  std::string_view was = {};
  std::string (*text)(const Json& row) = nullptr;
  // A group: `key` is empty, get() gives an object whose members join the row, and these are its columns.
  std::span<const ColumnForm> group = {};
  bool null_too = false;  // the key is in every row, null where there is no value
};

// What a column gets where it is a member, or what a member function says: field<&Row::bytes>. Of an enum its
// name.
template <auto kMember, class Row>
Json field(const Row& row) {
  using Value = std::remove_cvref_t<decltype(std::invoke(kMember, row))>;
  if constexpr (std::is_enum_v<Value>) {
    return Json(name_of(std::invoke(kMember, row)));
  } else {
    return Json(std::invoke(kMember, row));
  }
}

// The same column, whose key is in every row.
template <class Row>
Column<Row> or_null(Column<Row> column) {
  column.null_too = true;
  return column;
}

template <class Row>
class Schema {
 public:
  Schema(std::initializer_list<Column<Row>> columns) : columns_(columns) {
    for (const Column<Row>& c : columns_) {
      if (!c.group.empty() || c.key.empty()) {
        forms_.insert(forms_.end(), c.group.begin(), c.group.end());
        if (c.text == nullptr) continue;
      }
      forms_.push_back({c.key, c.title, c.unit, c.where, c.was, c.text});
    }
  }

  // A long table in pieces, each a screen: these columns, then those.
  friend Schema operator+(Schema first, const Schema& then) {
    first.columns_.insert(first.columns_.end(), then.columns_.begin(), then.columns_.end());
    first.forms_.insert(first.forms_.end(), then.forms_.begin(), then.forms_.end());
    return first;
  }

  // Values that are null are left out, but for columns that are or_null(): a row has the keys it has figures
  // for.
  Json row(const Row& r) const {
    Json json = Json::object();
    for (const Column<Row>& c : columns_) {
      if (c.get == nullptr) continue;
      Json value = c.get(r);
      if (value.is_null() && !c.null_too) continue;
      if (c.key.empty()) {
        json.update(value);
      } else {
        json[c.key] = std::move(value);
      }
    }
    return json;
  }

  // The same of a list, as an array.
  template <class Rows>
  Json rows(const Rows& list) const {
    Json json = Json::array();
    for (const auto& r : list) json.append(row(r));
    return json;
  }

  std::span<const ColumnForm> forms() const { return forms_; }

 private:
  std::vector<Column<Row>> columns_;
  std::vector<ColumnForm> forms_;
};

// A row's value under a column's key, or under the one it had before; null where it has neither.
const Json* value_at(const Json& row, const ColumnForm& column);

// A cell for people; "-" where the row has no value.
std::string cell_text(const Json& row, const ColumnForm& column);

struct RowTable {
  std::vector<std::vector<std::string>> lines;  // the first is the heading
  std::size_t left = 0;                         // leading columns of words
};

struct RowTableOptions {
  bool wide = false;
  bool transposed = false;             // a column for each of a few rows, with many figures each
  std::vector<std::string> axes = {};  // keys of a sweep's grid: the first columns, whatever the schema says
  std::vector<std::string_view> by = {};  // keys whose values are in a heading above the rows that share them
};

// Columns without a value in any row are left out. Where no row of a table has a time, its status stands
// there. What follows from the axes alone does not distinguish rows.
RowTable row_table(std::span<const ColumnForm> columns, std::span<const Json> rows,
                   const RowTableOptions& options = {});

// Every single value of every row, under the columns' keys, and sizes by name where their column has a title:
// for spreadsheets.
std::vector<std::vector<std::string>> row_csv(std::span<const ColumnForm> columns, std::span<const Json> rows,
                                              const std::vector<std::string>& axes = {});

}  // namespace kiln
