#include "studies/sweep/render.h"

#include <fmt/format.h>

#include "base/build_info.h"
#include "base/json.h"
#include "rows/row_values.h"
#include "studies/row_tables.h"

namespace kiln {
namespace {

std::vector<std::string> keys_of(const SweepReport& report) {
  std::vector<std::string> keys;
  keys.reserve(report.axes.size());
  for (const GridAxis& axis : report.axes) keys.push_back(axis.key);
  return keys;
}

// As the cell's own page had it; nothing of rows that were stored without it.
std::string unreliable_times_of(const Json& row) {
  const Json* host = row.find("host");
  const Json* load = host != nullptr && host->is_object() ? host->find("load") : nullptr;
  return load != nullptr && load->is_object() ? text_at(*load, "unreliable") : std::string();
}

std::vector<std::string> notes_of(const SweepReport& report) {
  std::vector<std::string> lines;
  for (const SweepCell& cell : report.cells) {
    if (cell.status == RowStatus::ok || cell.status == RowStatus::interrupted) continue;
    lines.push_back(fmt::format("{}: {}: {}", name_of(cell.status), str(cell.values), cell.reason));
  }
  std::size_t unreliable = 0;
  std::string first;
  for (const Json& row : report.rows()) {
    const std::string why = unreliable_times_of(row);
    if (why.empty()) continue;
    if (unreliable++ == 0) first = why;
  }
  if (unreliable > 0)
    lines.push_back(fmt::format("{} of {} rows: {}", unreliable, report.rows().size(), first));
  lines.insert(lines.end(), report.notes.begin(), report.notes.end());
  return lines;
}

Json document(const SweepReport& report, const std::vector<Json>& rows) {
  Json grid = Json::object(), cells = Json::array();
  for (const GridAxis& axis : report.axes) grid[axis.key] = axis.values;
  for (const SweepCell& cell : report.cells) {
    Json values = Json::object();
    for (const auto& [key, value] : cell.values) values[key] = value;
    Json entry = {{"grid", values},        {"cell", cell.id},         {"status", name_of(cell.status)},
                  {"reused", cell.reused}, {"seconds", cell.seconds}, {"rows", cell.rows.size()}};
    if (!cell.reason.empty()) entry["reason"] = cell.reason;
    cells.push_back(std::move(entry));
  }
  Json page = {{"command", report.command},
               {"build_id", build_info().build_id},
               {"grid", grid},
               {"cells", cells},
               {"stopped", report.stopped()},
               {"rows", rows}};
  page.update(studies_json(report.command, rows));
  page["remarks"] = report.notes;
  return page;
}

}  // namespace

StudyPage sweep_page(const SweepReport& report, bool wide) {
  StudyPage page;
  page.rows = report.rows();
  page.columns = columns_of(report.command);
  page.shown = {.wide = wide, .axes = keys_of(report)};
  page.notes = notes_of(report);
  page.tables = study_tables(report.command, page.rows);
  page.json = document(report, page.rows);
  return page;
}

}  // namespace kiln
