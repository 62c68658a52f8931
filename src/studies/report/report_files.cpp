#include "studies/report/report_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/error.h"
#include "report/text/escape.h"
#include "rows/result_log.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;
constexpr const char* kCharts = "report";  // the folder next to report.md

// Rows, and what is to be said about how they were found. The folder may be one we can only read: then a torn
// line stays where it is and is left out.
StoredResults read_rows(const std::string& folder) {
  const std::string path = (fs::path(folder) / "results.jsonl").string();
  std::error_code error;
  if (!fs::exists(path, error))
    throw Error(fmt::format("there are no stored rows: {} does not exist", path),
                "measure something first: kiln ablate --quick; or name the folder with --from");
  const std::string repaired = repair_results(folder);
  StoredResults stored = read_results(folder);
  if (!repaired.empty()) stored.notes.insert(stored.notes.begin(), repaired);
  return stored;
}

// Charts of an earlier page that this one does not show; other files are not ours.
void remove_old_charts(const fs::path& folder, const ReportPage& page) {
  std::error_code ignored;
  std::vector<fs::path> old;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.ends_with(".svg") && (name.starts_with("ablation-") ||
                                                 name.starts_with("steps-") || name.starts_with("memory-"));
    const bool shown = std::any_of(page.charts.begin(), page.charts.end(),
                                   [&](const ReportChart& p) { return p.name == name; });
    if (ours && !shown) old.push_back(entry.path());
  }
  for (const fs::path& path : old) fs::remove(path, ignored);
}

std::vector<std::string> write_report(const ReportPage& page, const std::string& out) {
  const fs::path charts = fs::path(out) / kCharts;
  std::error_code error;
  fs::create_directories(charts, error);
  if (error)
    throw Error(fmt::format("cannot make the folder {}: {}", charts.string(), error.message()),
                "name another folder with --out");
  std::vector<std::string> written = {(fs::path(out) / "report.md").string()};
  for (const ReportChart& p : page.charts) {
    written.push_back((charts / p.name).string());
    write_file_atomically(written.back(), p.svg);
  }
  write_file_atomically(written.front(), page.markdown);  // it names those before it
  remove_old_charts(charts, page);                        // named by no page any more
  return written;
}

}  // namespace

ReportFiles make_report_files(const std::string& folder, const std::string& out) {
  const StoredResults stored = read_rows(folder);
  try {
    ReportFiles made{make_report(stored.rows, stored.notes, kCharts), stored.rows.size(), {}};
    if (made.page.rows == 0)
      throw Error(fmt::format("none of the {} rows in {}/results.jsonl can be shown: it takes rows of ablate "
                              "and bench step whose gate passed, or of memory",
                              stored.rows.size(), folder),
                  "measure something first: kiln ablate --quick");
    made.written = write_report(made.page, out);
    return made;
  } catch (const Error&) {
    for (const std::string& line : stored.notes) fmt::print(stderr, "{}\n", line);
    throw;
  }
}

Json report_json(const ReportFiles& r) {
  return {{"command", "report"},         {"rows", r.stored},        {"rows_shown", r.page.rows},
          {"ablations", r.page.studies}, {"remarks", r.page.notes}, {"files", r.written}};
}

std::string report_text(const ReportFiles& r) {
  std::string text;
  for (const std::string& line : r.page.notes) text += shown_text(line) + "\n";
  const fs::path page = r.written.front();
  return text + fmt::format("{} of {} stored rows are in {}, with {} chart{} in {}\n", r.page.rows, r.stored,
                            page.string(), r.page.charts.size(), r.page.charts.size() == 1 ? "" : "s",
                            (page.parent_path() / kCharts).string());
}

}  // namespace kiln
