#include "studies/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "base/build_info.h"
#include "base/error.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

using nlohmann::json;
using Status = SweepCell::Status;

// FNV-1a: an id that is the same on every machine.
uint64_t hash(std::string_view text) {
  uint64_t h = 14695981039346656037U;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return h;
}

json grid_json(const GridCell& cell) {
  json values = json::object();
  for (const auto& [key, value] : cell) values[key] = value;
  return values;
}

bool is_gate(const json& row, const char* gate) { return row.value("gate", "") == gate; }

// The rows an earlier sweep stored for a cell; none where it was not finished, or ran out of a shorter time.
std::vector<json> stored_rows(const std::vector<json>& all, const std::string& id, double timeout) {
  std::vector<json> rows;
  for (const json& row : all) {
    if (row.value("cell", "") == id) rows.push_back(row);
  }
  if (rows.empty()) return {};
  const std::size_t wanted = rows.back().value("cell_rows", std::size_t{1});  // its latest run
  if (wanted == 0 || rows.size() < wanted) return {};                         // a torn file
  rows.erase(rows.begin(), rows.end() - static_cast<std::ptrdiff_t>(wanted));
  if (is_gate(rows.back(), "timed out") && rows.back().value("timeout_s", 0.0) < timeout) return {};
  return rows;
}

Status status_of(const std::vector<json>& rows) {
  if (std::all_of(rows.begin(), rows.end(), [](const json& r) { return is_gate(r, "no memory"); }))
    return Status::no_memory;
  if (std::any_of(rows.begin(), rows.end(), [](const json& r) { return is_gate(r, "timed out"); }))
    return Status::timed_out;
  return Status::done;
}

std::string why_not(const SweepRequest& request, const CellRun& run) {
  if (run.timed_out) return fmt::format("it took more than {:g} s", request.timeout);
  if (run.signal == SIGKILL) return "it was killed from outside: most likely the machine had no memory left";
  if (run.signal != 0) return fmt::format("it was ended by signal {}", run.signal);
  return run.reason.empty() ? fmt::format("it ended with status {}", run.status) : run.reason;
}

void store(const SweepRequest& request, const SweepCell& cell) {
  std::vector<std::string> lines;
  lines.reserve(cell.rows.size());
  for (const json& row : cell.rows) lines.push_back(row.dump(-1, ' ', false, json::error_handler_t::replace));
  append_results(request.out, lines);
}

void finish_cell(const SweepRequest& request, CellRun run, SweepCell& cell) {
  cell.seconds = run.seconds;
  if (run.stopped) return;
  if (run.rows.empty()) {
    cell.status = run.timed_out                        ? Status::timed_out
                  : run.status == 3 && run.signal == 0 ? Status::unavailable
                                                       : Status::failed;
    cell.reason = why_not(request, run);
    json row = {{"command", request.command},
                {"gate", name_of(cell.status)},
                {"reason", cell.reason},
                {"build_id", build_info().build_id},
                {"time", utc_now()}};
    if (run.timed_out) row["timeout_s"] = request.timeout;
    run.rows = {row};
  } else {
    cell.status = status_of(run.rows);
    if (cell.status != Status::done) cell.reason = run.rows.front().value("reason", "");
  }
  for (json& row : run.rows) {
    row["cell"] = cell.id;
    row["cell_rows"] = run.rows.size();
    row["grid"] = grid_json(cell.values);
  }
  cell.rows = std::move(run.rows);
  // A failure is worth another try, and what a machine lacks today it may have tomorrow.
  if (cell.status != Status::failed && cell.status != Status::unavailable) store(request, cell);
}

}  // namespace

std::string_view name_of(SweepCell::Status s) {
  constexpr std::array<std::string_view, 6> kNames = {"done",          "no memory", "timed out",
                                                      "not available", "failed",    "not run"};
  return kNames[static_cast<std::size_t>(s)];
}

std::vector<json> SweepReport::rows() const {
  std::vector<json> all;
  for (const SweepCell& cell : cells) all.insert(all.end(), cell.rows.begin(), cell.rows.end());
  return all;
}

bool SweepReport::stopped() const {
  return std::any_of(cells.begin(), cells.end(), [](const SweepCell& c) { return c.status == Status::left; });
}

bool SweepReport::any_done() const {
  return std::any_of(cells.begin(), cells.end(), [](const SweepCell& c) { return c.status == Status::done; });
}

std::string cell_id(const SweepRequest& request, const GridCell& cell) {
  std::string text = request.command + "\n" + request.place;
  std::vector<std::string> words = request.words;
  for (const auto& [key, value] : cell) words.push_back(fmt::format("{}={}", key, value));
  std::sort(words.begin(), words.end());  // the order of options decides nothing
  for (const std::string& word : words) text += "\n" + word;
  return fmt::format("{:016x}", hash(text));
}

SweepReport run_sweep(const SweepRequest& request, const SweepTools& tools) {
  SweepReport report;
  report.command = request.command;
  report.axes = request.axes;
  append_results(request.out, {});  // is there a place for them? Better said now than after minutes
  if (const std::string repaired = repair_results(request.out); !repaired.empty())
    report.remarks.push_back(repaired);
  StoredResults stored;
  if (!request.fresh) stored = read_results(request.out);
  for (GridCell& values : cells_of(request.axes)) {
    SweepCell cell;
    cell.id = cell_id(request, values);
    cell.values = std::move(values);
    cell.rows = stored_rows(stored.rows, cell.id, request.timeout);
    if (!cell.rows.empty()) {
      cell.reused = true;
      cell.status = status_of(cell.rows);
      if (cell.status != Status::done) cell.reason = cell.rows.front().value("reason", "");
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
    report.remarks.push_back(
        fmt::format("{} of {} cells were measured before and are taken from {}; --fresh "
                    "measures them again",
                    reused, report.cells.size(), request.out));
  if (report.stopped())
    report.remarks.push_back(
        fmt::format("stopped with {} of {} cells not run; the same command goes on from there",
                    count([](const SweepCell& c) { return c.status == Status::left; }), report.cells.size()));
  return report;
}

}  // namespace kiln::cli
