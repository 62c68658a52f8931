// `kiln report`: what is stored in results.jsonl as one page with tables and pictures (docs/ablation.md).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/atomic_file.h"
#include "base/error.h"
#include "studies/format.h"
#include "kiln/cmd.h"
#include "studies/report/report_page.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;
constexpr const char* kPictures = "report";  // the folder beside report.md

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
  if (!repaired.empty()) stored.remarks.insert(stored.remarks.begin(), repaired);
  return stored;
}

// Pictures of an earlier page that this one does not show; other files are none of ours.
void remove_old_pictures(const fs::path& folder, const ReportPage& page) {
  std::error_code ignored;
  std::vector<fs::path> old;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.ends_with(".svg") && (name.starts_with("ablation-") ||
                                                 name.starts_with("steps-") || name.starts_with("memory-"));
    const bool shown = std::any_of(page.pictures.begin(), page.pictures.end(),
                                   [&](const ReportPicture& p) { return p.name == name; });
    if (ours && !shown) old.push_back(entry.path());
  }
  for (const fs::path& path : old) fs::remove(path, ignored);
}

std::vector<std::string> write_report(const ReportPage& page, const std::string& out) {
  const fs::path pictures = fs::path(out) / kPictures;
  std::error_code error;
  fs::create_directories(pictures, error);
  if (error)
    throw Error(fmt::format("cannot make the folder {}: {}", pictures.string(), error.message()),
                "name another folder with --out");
  std::vector<std::string> written = {(fs::path(out) / "report.md").string()};
  for (const ReportPicture& p : page.pictures) {
    written.push_back((pictures / p.name).string());
    write_file_atomically(written.back(), p.svg);
  }
  write_file_atomically(written.front(), page.markdown);  // it names those before it
  remove_old_pictures(pictures, page);                    // named by no page any more
  return written;
}

// Both, or an Error; then what was found amiss, and may have been repaired for good, is said beside it.
struct Report {
  ReportPage page;
  std::vector<std::string> files;
};

Report make_files(const StoredResults& stored, const std::string& folder, const std::string& out) try {
  Report made{make_report(stored.rows, stored.remarks, kPictures), {}};
  if (made.page.rows == 0)
    throw Error(fmt::format("none of the {} rows in {}/results.jsonl is of ablate, bench step or memory",
                            stored.rows.size(), folder),
                "measure something first: kiln ablate --quick");
  made.files = write_report(made.page, out);
  return made;
} catch (const Error&) {
  for (const std::string& line : stored.remarks) fmt::print(stderr, "{}\n", line);
  throw;
}

void run_report(const std::string& from, const CommonOptions& common) {
  const std::string folder = from.empty() ? common.out : from;
  const StoredResults stored = read_rows(folder);
  const auto [page, written] = make_files(stored, folder, common.out);
  if (common.json) {
    std::fputs((dump({{"command", "report"},
                      {"rows", stored.rows.size()},
                      {"rows_shown", page.rows},
                      {"ablations", page.studies},
                      {"remarks", page.remarks},
                      {"files", written}},
                     2) +
                "\n")
                   .c_str(),
               stdout);
    return;
  }
  for (const std::string& line : page.remarks) fmt::print("{}\n", line);
  fmt::print("{} of {} stored rows are in {}", page.rows, stored.rows.size(), written.front());
  fmt::print(", with {} picture{} in {}\n", page.pictures.size(), page.pictures.size() == 1 ? "" : "s",
             (fs::path(common.out) / kPictures).string());
}

}  // namespace

CommandBody add_report(CLI::App& app, const CommonOptions& common) {
  auto from = std::make_shared<std::string>();
  app.add_option("--from", *from, "The folder of results.jsonl (default that of --out, where the page goes)")
      ->type_name("DIR");
  return [from, &common] { run_report(*from, common); };
}

}  // namespace kiln::cli
