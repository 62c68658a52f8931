#include "studies/report/report_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/error.h"
#include "report/html/document_html.h"
#include "report/text/escape.h"
#include "rows/result_log.h"
#include "studies/report/run_rows.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

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

// A picture that a command left next to its rows: below `folder` and nowhere else, whatever a row says.
std::optional<std::string> picture_in(const fs::path& folder, const std::string& name) {
  constexpr std::uintmax_t kMostBytes = 400'000;  // a page of many still opens at once
  std::error_code error;
  const fs::path root = fs::weakly_canonical(folder, error);
  std::vector<fs::path> places = {name, folder / name};
  for (const fs::directory_entry& study : fs::directory_iterator(folder, error)) {
    if (!study.path().filename().string().starts_with("study-")) continue;
    for (const fs::directory_entry& part : fs::directory_iterator(study.path(), error))
      places.push_back(part.path() / name);
  }
  for (const fs::path& place : places) {
    const fs::path found = fs::weakly_canonical(place, error);
    const fs::path below = found.lexically_relative(root);
    if (error || below.empty() || *below.begin() == ".." || !fs::is_regular_file(found, error)) continue;
    if (fs::file_size(found, error) > kMostBytes) continue;
    std::ifstream file(found, std::ios::binary);
    std::string svg{std::istreambuf_iterator<char>(file), {}};
    if (svg.starts_with("<svg") || svg.starts_with("<?xml")) return svg;
  }
  return std::nullopt;
}

// Charts of an earlier report that this one does not show; other files are not ours. The list of the former
// ones lies beside them.
constexpr const char* kList = "charts.txt";

void remove_old_charts(const fs::path& folder, const std::set<std::string>& shown) {
  std::error_code ignored;
  std::set<std::string> former;
  {
    std::ifstream list(folder / kList);
    for (std::string name; std::getline(list, name);)
      if (name.find('/') == std::string::npos && name.ends_with(".svg")) former.insert(name);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool old = name.ends_with(".svg") && (name.starts_with("ablation-") || name.starts_with("steps-") ||
                                                name.starts_with("memory-"));
    if (old) former.insert(name);  // of a kiln without the list
  }
  for (const std::string& name : former)
    if (!shown.contains(name)) fs::remove(folder / name, ignored);
}

std::vector<std::string> write_report(const ReportPage& page, const std::string& out,
                                      const std::string& name) {
  const fs::path charts = fs::path(out) / name;
  std::error_code error;
  fs::create_directories(charts, error);
  if (error)
    throw Error(fmt::format("cannot make the folder {}: {}", charts.string(), error.message()),
                "name another folder with --out");
  std::vector<std::string> written = {(fs::path(out) / (name + ".md")).string(),
                                      (fs::path(out) / (name + ".html")).string()};
  std::set<std::string> shown;
  std::string list;
  for (const NamedChart& chart : charts_of(page.document)) {
    if (!shown.insert(chart.name + ".svg").second) continue;
    written.push_back((charts / (chart.name + ".svg")).string());
    list += chart.name + ".svg\n";
    write_file_atomically(written.back(), chart.svg);
  }
  write_file_atomically(written[0], document_markdown(page.document, name));  // it names those before it
  write_file_atomically(written[1], document_html(page.document));
  remove_old_charts(charts, shown);  // named by no page any more
  write_file_atomically((charts / kList).string(), list);
  return written;
}

}  // namespace

ReportFiles make_report_files(const std::string& folder, const std::string& out, const std::string& writeup) {
  const StoredResults stored = read_rows(folder);
  try {
    std::size_t pictures = 0;  // bytes
    ReportOptions options{
        .build = build_info().build_id, .writeup = writeup, .picture = [&](const std::string& name) {
          constexpr std::size_t kMostBytes = 900'000;  // of all: the page stays below 2 MB
          std::optional<std::string> svg = picture_in(folder, name);
          if (!svg || pictures + svg->size() > kMostBytes) return std::optional<std::string>();
          pictures += svg->size();
          return svg;
        }};
    std::vector<Json> rows = stored.rows;
    for (Json& run : run_rows(folder)) rows.push_back(std::move(run));
    ReportFiles made{make_report(rows, stored.notes, options), stored.rows.size(), {}};
    if (made.page.rows == 0)
      throw Error(
          fmt::format("none of the {} rows in {}/results.jsonl can be shown: times need a passed gate",
                      stored.rows.size(), folder),
          "measure something first: kiln ablate --quick");
    made.written = write_report(made.page, out, writeup.empty() ? "report" : "writeup-" + writeup);
    return made;
  } catch (const Error&) {
    for (const std::string& line : stored.notes) fmt::print(stderr, "{}\n", line);
    throw;
  }
}

Json report_json(const ReportFiles& r) {
  return {{"command", "report"},           {"rows", r.stored},
          {"rows_shown", r.page.rows},     {"ablations", r.page.studies},
          {"questions", r.page.questions}, {"answered", r.page.answered},
          {"remarks", r.page.notes},       {"files", r.written}};
}

std::string report_text(const ReportFiles& r) {
  std::string text;
  for (const std::string& line : r.page.notes) text += shown_text(line) + "\n";
  return text +
         fmt::format(
             "{} of {} stored rows and the answers to {} of {} questions are in {}; as Markdown in {}\n",
             r.page.rows, r.stored, r.page.answered, r.page.questions, r.written[1], r.written[0]);
}

}  // namespace kiln
