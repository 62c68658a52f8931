#include "studies/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "base/build_info.h"
#include "base/error.h"
#include "base/json.h"
#include "base/plain_number.h"
#include "rows/result_log.h"

namespace kiln {
namespace {

// FNV-1a: an id that is the same on every machine.
uint64_t hash(std::string_view text) {
  uint64_t h = 14695981039346656037U;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return h;
}

Json grid_json(const GridCell& cell) {
  Json values = Json::object();
  for (const auto& [key, value] : cell) values[key] = value;
  return values;
}

// The rows an earlier sweep stored for a cell; none where it was not finished, or ran out of a shorter time.
std::vector<Json> stored_rows(const std::vector<Json>& all, const std::string& id, double timeout) {
  std::vector<Json> rows;
  for (const Json& row : all) {
    if (row.value("cell", "") == id) rows.push_back(row);
  }
  if (rows.empty()) return {};
  const std::size_t wanted = rows.back().value("cell_rows", std::size_t{1});  // its latest run
  if (wanted == 0 || rows.size() < wanted) return {};                         // a torn file
  rows.erase(rows.begin(), rows.end() - static_cast<std::ptrdiff_t>(wanted));
  if (status_of(rows.back()) == RowStatus::timeout && rows.back().value("timeout_s", 0.0) < timeout)
    return {};
  return rows;
}

// Ok where one row is; else what became of the first.
RowStatus status_of_cell(const std::vector<Json>& rows) {
  const bool any =
      std::any_of(rows.begin(), rows.end(), [](const Json& r) { return status_of(r) == RowStatus::ok; });
  return any ? RowStatus::ok : status_of(rows.front());
}

std::string why_not(const SweepRequest& request, const CellRun& run) {
  if (run.timed_out) return fmt::format("it took more than {} s", plain(request.timeout, 6));
  if (run.signal == SIGKILL) return "it was killed by a signal: most likely the machine ran out of memory";
  if (run.signal != 0) return fmt::format("it was ended by signal {}", run.signal);
  return run.reason.empty() ? fmt::format("it ended with status {}", run.status) : run.reason;
}

void store(const SweepRequest& request, const SweepCell& cell) {
  std::vector<std::string> lines;
  lines.reserve(cell.rows.size());
  for (const Json& row : cell.rows) lines.push_back(row.dump());
  append_results(request.out, lines);
}

void finish_cell(const SweepRequest& request, CellRun run, SweepCell& cell) {
  cell.seconds = run.seconds;
  if (run.stopped) return;
  if (run.rows.empty()) {
    cell.status = run.timed_out                        ? RowStatus::timeout
                  : run.status == 3 && run.signal == 0 ? RowStatus::unavailable
                                                       : RowStatus::failed;
    cell.reason = why_not(request, run);
    Json row = {{"schema", kRowSchema},
                {"command", request.command},
                {"status", name_of(cell.status)},
                {"gate", name_of(Gate::not_verified)},
                {"reason", cell.reason},
                {"build_id", build_info().build_id},
                {"time", utc_now()}};
    if (run.timed_out) row["timeout_s"] = request.timeout;
    run.rows = {row};
  } else {
    cell.status = status_of_cell(run.rows);
    if (cell.status != RowStatus::ok) cell.reason = run.rows.front().value("reason", "");
  }
  for (Json& row : run.rows) {
    row["cell"] = cell.id;
    row["cell_rows"] = run.rows.size();
    row["grid"] = grid_json(cell.values);
  }
  cell.rows = std::move(run.rows);
  // A failure is worth another try, and what a machine lacks today it may have tomorrow.
  if (cell.status != RowStatus::failed && cell.status != RowStatus::unavailable) store(request, cell);
}

}  // namespace

std::vector<Json> SweepReport::rows() const {
  std::vector<Json> all;
  for (const SweepCell& cell : cells) all.insert(all.end(), cell.rows.begin(), cell.rows.end());
  return all;
}

bool SweepReport::stopped() const {
  return std::any_of(cells.begin(), cells.end(),
                     [](const SweepCell& c) { return c.status == RowStatus::interrupted; });
}

bool SweepReport::any_done() const {
  return std::any_of(cells.begin(), cells.end(),
                     [](const SweepCell& c) { return c.status == RowStatus::ok; });
}

std::string cell_id(const SweepRequest& request, const GridCell& cell) {
  std::string text = request.command + "\n" + request.place;
  std::vector<std::string> args = request.args;
  for (const auto& [key, value] : cell) args.push_back(fmt::format("{}={}", key, value));
  std::sort(args.begin(), args.end());  // the order of options decides nothing
  for (const std::string& arg : args) text += "\n" + arg;
  return fmt::format("{:016x}", hash(text));
}

SweepReport run_sweep(const SweepRequest& request, const SweepTools& tools) {
  SweepReport report;
  report.command = request.command;
  report.axes = request.axes;
  append_results(request.out, {});  // is there a place for them? Better said now than after minutes
  if (const std::string repaired = repair_results(request.out); !repaired.empty())
    report.notes.push_back(repaired);
  StoredResults stored;
  if (!request.fresh) stored = read_results(request.out);
  for (GridCell& values : cells_of(request.axes)) {
    SweepCell cell;
    cell.id = cell_id(request, values);
    cell.values = std::move(values);
    cell.rows = stored_rows(stored.rows, cell.id, request.timeout);
    if (!cell.rows.empty()) {
      cell.reused = true;
      cell.status = status_of_cell(cell.rows);
      if (cell.status != RowStatus::ok) cell.reason = cell.rows.front().value("reason", "");
    }
    report.cells.push_back(std::move(cell));
  }
  std::size_t at = 0;
  for (SweepCell& cell : report.cells) {
    ++at;
    if (cell.reused) continue;
    if (tools.stop()) break;
    tools.progress(fmt::format("cell {} of {}: {}", at, report.cells.size(), str(cell.values)));
    finish_cell(request, tools.run(cell.values), cell);
  }
  tools.progress("");
  const auto count = [&](auto&& which) {
    return std::count_if(report.cells.begin(), report.cells.end(), which);
  };
  if (const auto reused = count([](const SweepCell& c) { return c.reused; }); reused > 0)
    report.notes.push_back(
        fmt::format("{} of {} cells were measured before and are taken from {}; --fresh "
                    "measures them again",
                    reused, report.cells.size(), request.out));
  if (report.stopped())
    report.notes.push_back(fmt::format(
        "stopped with {} of {} cells not run; the same command resumes there",
        count([](const SweepCell& c) { return c.status == RowStatus::interrupted; }), report.cells.size()));
  return report;
}

}  // namespace kiln
