#include "studies/report/rows_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "base/error.h"
#include "base/json_reader.h"
#include "rows/row_status.h"
#include "rows/row_values.h"
#include "studies/report/stored_rows.h"
#include "studies/row_tables.h"

namespace kiln {
namespace {

// A row is one line, but whole sweeps have been seen on it.
constexpr JsonLimits kRowLimits{.max_bytes = std::size_t{16} << 20, .max_depth = 16};

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Error(fmt::format("there is no file of rows {}", path), "name JSONL files with --rows and --peers");
  return {std::istreambuf_iterator<char>(file), {}};
}

// Commands whose rows say all that determines them, so that a later one of the same replaces an earlier.
bool measured_again_replaces(std::string_view command) {
  return command == "bench step" || command == "memory" || command.starts_with("bench attention") ||
         command.starts_with("bench flash") || command.starts_with("bench leaderboard");
}

struct Group {
  std::string command, place;
  std::vector<Json> rows;
};

std::vector<Group> groups_of(std::span<const Json> rows) {
  std::vector<Group> groups;
  for (const Json& row : rows) {
    if (!belongs_in_tables(row)) continue;
    const std::string command = text_at(row, "command"), place = place_of(row);
    const auto at = std::find_if(groups.begin(), groups.end(),
                                 [&](const Group& g) { return g.command == command && g.place == place; });
    (at == groups.end() ? groups.emplace_back(Group{command, place, {}}) : *at).rows.push_back(row);
  }
  return groups;
}

StudyPage page_of(Group group, const std::vector<std::string>& wanted, bool wide) {
  StudyPage page;
  const std::size_t all = group.rows.size();
  if (measured_again_replaces(group.command)) group.rows = latest_rows(group.rows);
  if (const std::size_t less = all - group.rows.size(); less > 0)
    page.notes.push_back(fmt::format("{} row{} measured again later: only the latest of each is shown", less,
                                     less == 1 ? " was" : "s were"));
  page.place = group.place;
  page.columns = columns_of(group.command);
  page.shown.wide = wide;
  page.json = {{"measured_by", group.command}, {"place", group.place}, {"rows", group.rows}};
  if (wanted.empty()) {
    page.rows = group.rows;
    page.tables = study_tables(group.command, group.rows);
    page.json.update(studies_json(group.command, group.rows));
  } else {
    RowTable table = row_table(chosen_columns(page.columns, wanted), group.rows);
    page.tables.push_back({"", std::move(table.lines), table.left, true});
  }
  return page;
}

}  // namespace

std::vector<Json> read_row_files(const std::vector<std::string>& paths) {
  std::vector<Json> rows;
  for (const std::string& path : paths) {
    const std::string text = content_of(path);
    std::size_t number = 0;
    for (std::size_t from = 0; from < text.size();) {
      const std::size_t end = std::min(text.find('\n', from), text.size());
      const std::string_view line = std::string_view(text).substr(from, end - from);
      from = end + 1;
      ++number;
      if (line.empty()) continue;
      const std::string source = fmt::format("{}:{}", path, number);
      rows.push_back(parse_json(line, kRowLimits, source));
      if (!rows.back().is_object())
        throw Error(fmt::format("{} is no row; expected one JSON object a line", source), "restore the file");
    }
  }
  return rows;
}

std::vector<ColumnForm> chosen_columns(std::span<const ColumnForm> known,
                                       const std::vector<std::string>& wanted) {
  if (wanted.empty()) return {known.begin(), known.end()};
  std::vector<ColumnForm> columns;
  for (const std::string& key : wanted) {
    const auto at =
        std::find_if(known.begin(), known.end(), [&](const ColumnForm& c) { return c.key == key; });
    if (at == known.end()) {
      std::vector<std::string_view> keys;
      for (const ColumnForm& c : known)
        if (!c.key.empty()) keys.push_back(c.key);
      throw Error(fmt::format("--columns names '{}'; expected some of {}", key, fmt::join(keys, ", ")), {},
                  ErrorKind::usage);
    }
    columns.push_back(*at);
    columns.back().where = Where::table;
    if (columns.back().title.empty()) columns.back().title = columns.back().key;
  }
  return columns;
}

bool belongs_in_tables(const Json& row) { return !number_at(row, "p50_ms") || counts(row); }

std::vector<std::string> left_out_notes(std::span<const Json> rows, std::string_view whose) {
  std::map<std::string, int> reasons;
  for (const Json& row : rows) {
    if (belongs_in_tables(row)) continue;
    ++reasons[fmt::format("{}, gate {}", name_of(status_of(row)), name_of(gate_of(row)))];
  }
  std::vector<std::string> notes;
  for (const auto& [reason, n] : reasons)
    notes.push_back(fmt::format("{} row{}{} left out: status {}", n, n == 1 ? "" : "s", whose, reason));
  return notes;
}

StudyPage rows_page(std::span<const Json> rows, const std::vector<std::string>& columns, bool wide) {
  std::vector<Group> groups = groups_of(rows);
  std::vector<std::string> notes = left_out_notes(rows, "");
  if (groups.empty())
    throw Error(fmt::format("none of the {} rows has a place in a table{}", rows.size(),
                            notes.empty() ? "" : fmt::format(" ({})", fmt::join(notes, "; "))),
                "measure something: kiln bench step --help");
  if (groups.size() == 1) {
    StudyPage page = page_of(std::move(groups.front()), columns, wide);
    page.notes.insert(page.notes.end(), notes.begin(), notes.end());
    page.json["command"] = "report";
    page.json["remarks"] = page.notes;
    return page;
  }
  StudyPage page;
  page.notes = notes;
  Json parts = Json::array();
  for (Group& group : groups) {
    page.parts.push_back(page_of(std::move(group), columns, wide));
    page.parts.back().title = text_at(page.parts.back().json, "measured_by");
    parts.push_back(page.parts.back().json);
  }
  page.json = {{"command", "report"}, {"parts", parts}, {"remarks", notes}};
  return page;
}

}  // namespace kiln
