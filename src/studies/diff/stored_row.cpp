#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "base/error.h"
#include "rows/row_status.h"
#include "rows/row_values.h"
#include "studies/diff/diff.h"
#include "studies/report/rows_page.h"

namespace kiln {
namespace {

bool can_differ(const Json& row) {
  const std::string command = text_at(row, "command");
  return (command == "compare" || command == "measure") && counts(row);
}

[[noreturn]] void no_such_row(const std::string& what, const std::string& path) {
  throw Error(fmt::format("{} of {}", what, path),
              "FILE#N is its Nth row, FILE#-1 its last, FILE its newest of kiln compare or measure",
              ErrorKind::usage);
}

}  // namespace

Json stored_row(const std::string& text, const std::string& folder) {
  const std::size_t hash = text.rfind('#');
  std::string path = text.substr(0, hash);
  if (path.empty()) path = folder;
  if (std::filesystem::is_directory(path)) path = (std::filesystem::path(path) / "results.jsonl").string();
  if (!std::filesystem::exists(path))
    throw Error(fmt::format("there is no file of rows {}", path),
                "name a stored row, FILE or FILE#N, or a configuration such as preset=baseline",
                ErrorKind::usage);
  const std::vector<Json> rows = read_row_files({path});
  if (hash == std::string::npos) {
    for (auto row = rows.rbegin(); row != rows.rend(); ++row)
      if (can_differ(*row)) return *row;
    no_such_row("there is no timed row of kiln compare or kiln measure in the rows", path);
  }
  const std::string_view digits = std::string_view(text).substr(hash + 1);
  int64_t n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  const auto count = static_cast<int64_t>(rows.size());
  if (error != std::errc{} || end != digits.data() + digits.size())
    no_such_row(fmt::format("'#{}' is no number of a row", digits), path);
  if (n < 0) n += count + 1;
  if (n < 1 || n > count)
    no_such_row(fmt::format("#{} is asked for; there are {} rows", digits, count), path);
  return rows[static_cast<std::size_t>(n - 1)];
}

}  // namespace kiln
