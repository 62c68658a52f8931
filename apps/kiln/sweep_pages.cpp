#include "kiln/sweep_pages.h"

#include <fmt/format.h>

#include "base/build_info.h"
#include "studies/format.h"
#include "kiln/study_tables.h"
#include "report/result_table.h"

namespace kiln::cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::vector<std::string> keys_of(const SweepReport& report) {
  std::vector<std::string> keys;
  keys.reserve(report.axes.size());
  for (const GridAxis& axis : report.axes) keys.push_back(axis.key);
  return keys;
}

std::vector<std::string> remarks_of(const SweepReport& report) {
  std::vector<std::string> lines;
  for (const SweepCell& cell : report.cells) {
    if (cell.status == SweepCell::Status::done || cell.status == SweepCell::Status::left) continue;
    lines.push_back(fmt::format("{}: {}: {}", name_of(cell.status), str(cell.values), cell.reason));
  }
  lines.insert(lines.end(), report.remarks.begin(), report.remarks.end());
  return lines;
}

std::string sweep_json(const SweepReport& report) {
  ordered_json grid = ordered_json::object(), cells = ordered_json::array(), rows = ordered_json::array();
  for (const GridAxis& axis : report.axes) grid[axis.key] = axis.values;
  for (const SweepCell& cell : report.cells) {
    ordered_json values = ordered_json::object();
    for (const auto& [key, value] : cell.values) values[key] = value;
    ordered_json entry = {
        {"grid", values},        {"cell", cell.id},         {"status", name_of(cell.status)},
        {"reused", cell.reused}, {"seconds", cell.seconds}, {"rows", cell.rows.size()}};
    if (!cell.reason.empty()) entry["reason"] = cell.reason;
    cells.push_back(std::move(entry));
  }
  const std::vector<json> all = report.rows();
  for (const json& row : all) rows.push_back(ordered_json(row));
  ordered_json page = {{"command", report.command},
                       {"build_id", build_info().build_id},
                       {"grid", grid},
                       {"cells", cells},
                       {"stopped", report.stopped()},
                       {"rows", rows}};
  page.update(studies_json(report.command, all));
  page["remarks"] = report.remarks;
  return dump(page, 2) + "\n";
}

}  // namespace

std::string sweep_page(const SweepReport& report, PageFormat format) {
  if (format == PageFormat::json) return sweep_json(report);
  const std::vector<json> rows = report.rows();
  if (rows.empty()) return "";
  const ResultTable table = result_table(rows, keys_of(report));
  std::string text = written(table.table, table.left, format);
  if (format == PageFormat::csv) return text;  // one table, as spreadsheets want it
  text += studies_page(report.command, rows, format);
  for (const std::string& line : remarks_of(report)) text += remark(line, format);
  return text;
}

}  // namespace kiln::cli
