#include "rows/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/plain_number.h"
#include "rows/row_values.h"

namespace kiln {
namespace {

bool is_text(const ColumnForm& c) { return c.unit == Unit::text; }

std::string number_text(double x, Unit unit) {
  switch (unit) {
    case Unit::count:
      return fmt::format("{:.0f}", x);
    case Unit::milliseconds:
      return plain(x, 4);
    case Unit::seconds:
      return fmt::format("{:.2f}", x / 1e3);
    case Unit::bytes:
      return x >= 10 * 0x1p20 ? fmt::format("{:.0f}", x / 0x1p20) : fmt::format("{:.2f}", x / 0x1p20);
    case Unit::mebibytes:
      return fmt::format("{:.2f}", x / 0x1p20);
    case Unit::share:
      return fmt::format("{:.1f} %", 100 * x);
    case Unit::percent:
      return fmt::format("{:.0f} %", 100 * x);
    case Unit::times:
      return fmt::format("{:.2f}x", x);
    case Unit::rate:
      return x >= 1e6 ? plain(x / 1e6, 3) + "M" : x >= 1e5 ? fmt::format("{:.0f}k", x / 1e3) : figure(x);
    default:
      return figure(x);
  }
}

std::string axis_value(const Json& row, const std::string& axis) {
  const Json* grid = row.find("grid");
  return grid == nullptr ? "" : text_at(*grid, axis);
}

// Do rows of one cell of the grid differ in it? Of those that were not timed, what they lack says nothing.
bool tells_apart(const ColumnForm& c, std::span<const Json> rows, const std::vector<std::string>& axes) {
  std::map<std::string, std::string> first;  // its text in the first row of each cell
  return std::any_of(rows.begin(), rows.end(), [&](const Json& row) {
    std::string cell;
    for (const std::string& axis : axes) cell += axis_value(row, axis) + "\n";
    std::string text = cell_text(row, c);
    if (text == "-" && !number_at(row, "p50_ms")) return false;
    const auto [at, fresh] = first.emplace(std::move(cell), text);
    return !fresh && at->second != text;
  });
}

bool is_shown(const ColumnForm& c, std::span<const Json> rows, const RowTableOptions& options) {
  const auto has_value = [&](const Json& row) { return cell_text(row, c) != "-"; };
  if (c.title.empty() || std::none_of(rows.begin(), rows.end(), has_value)) return false;
  if (std::find(options.axes.begin(), options.axes.end(), c.key) != options.axes.end()) return false;
  if (std::find(options.by.begin(), options.by.end(), c.key) != options.by.end()) return false;
  if (c.where == Where::table) return true;
  if (c.where == Where::stored) return false;
  return options.wide || (c.where == Where::differs && tells_apart(c, rows, options.axes));
}

RowTable transposed(const std::vector<std::vector<std::string>>& lines) {
  RowTable table{std::vector<std::vector<std::string>>(lines.front().size()), 1};
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) table.lines[i].push_back(line[i]);
  return table;
}

}  // namespace

const Json* value_at(const Json& row, const ColumnForm& column) {
  const Json* value = row.find(column.key);
  if (value == nullptr && !column.was.empty()) value = row.find(column.was);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string cell_text(const Json& row, const ColumnForm& column) {
  if (column.text != nullptr) {
    std::string text = column.text(row);
    return text.empty() ? "-" : text;
  }
  const Json* value = value_at(row, column);
  if (value == nullptr) return "-";
  if (value->is_number() && column.unit != Unit::text) return number_text(value->get<double>(), column.unit);
  std::string word = text_at(row, row.contains(column.key) ? column.key : column.was);
  return word.empty() ? "-" : word;
}

RowTable row_table(std::span<const ColumnForm> columns, std::span<const Json> rows,
                   const RowTableOptions& options) {
  std::vector<const ColumnForm*> words, figures;
  for (const ColumnForm& c : columns) {
    if (is_shown(c, rows, options)) (is_text(c) ? words : figures).push_back(&c);
  }
  RowTable table;
  table.left = options.axes.size() + words.size();
  std::vector<std::string> heading = options.axes;
  for (const ColumnForm* c : words) heading.emplace_back(c->title);
  for (const ColumnForm* c : figures) heading.emplace_back(c->title);
  const bool says_why = figures.empty() && std::any_of(rows.begin(), rows.end(), [](const Json& row) {
                          return in_place_of_times(row) != "-";
                        });
  if (says_why) heading.emplace_back("result");  // no row has a figure: the column says why
  table.lines.push_back(std::move(heading));
  for (const Json& row : rows) {
    std::vector<std::string> line;
    for (const std::string& axis : options.axes) line.push_back(axis_value(row, axis));
    for (const ColumnForm* c : words) line.push_back(cell_text(row, *c));
    for (const ColumnForm* c : figures) line.push_back(cell_text(row, *c));
    if (says_why) line.emplace_back("-");
    if (line.size() > table.left && line[table.left] == "-") line[table.left] = in_place_of_times(row);
    table.lines.push_back(std::move(line));
  }
  return options.transposed ? transposed(table.lines) : table;
}

std::vector<std::vector<std::string>> row_csv(std::span<const ColumnForm> columns, std::span<const Json> rows,
                                              const std::vector<std::string>& axes) {
  std::vector<std::vector<std::string>> lines = {axes};
  std::vector<const ColumnForm*> kept;
  for (const ColumnForm& c : columns) {
    const auto nested = [&](const Json& row) {
      const Json* value = value_at(row, c);
      return value != nullptr && value->is_structured() && (c.title.empty() || value->is_array());
    };
    const auto& names = lines.front();
    const bool there = std::find(names.begin(), names.end(), c.key) != names.end();
    if (c.key.empty() || there || std::any_of(rows.begin(), rows.end(), nested)) continue;
    kept.push_back(&c);
    lines.front().emplace_back(c.key);
  }
  for (const Json& row : rows) {
    std::vector<std::string> line;
    for (const std::string& axis : axes) line.push_back(axis_value(row, axis));
    for (const ColumnForm* c : kept) {
      const Json* value = value_at(row, *c);
      line.push_back(value == nullptr ? ""
                     : value->is_number() && !value->is_number_integer()
                         ? fmt::format("{:.6g}", value->get<double>())
                     : value->is_object() ? text_at(row, row.contains(c->key) ? c->key : c->was)
                     : value->is_string() ? value->text()
                                          : value->dump());
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace kiln
