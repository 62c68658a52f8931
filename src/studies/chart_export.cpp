#include "studies/chart_export.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/choice.h"
#include "base/error.h"
#include "base/json.h"
#include "studies/step/step_charts.h"

namespace kiln {

bool read_chart_export(const std::string& text) { return index_of("--export", text, {"none", "svg"}) == 1; }

std::vector<std::string> write_charts(const std::string& out, const std::string& group,
                                      std::span<const NamedChart> charts) {
  const std::filesystem::path folder = std::filesystem::path(out) / group;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw Error(fmt::format("cannot write to {}: {}", folder.string(), error.message()),
                "name another folder with --out");
  std::vector<std::string> paths;
  for (const NamedChart& p : charts) {
    paths.push_back((folder / fmt::format("{}.svg", p.name)).string());
    write_file_atomically(paths.back(), p.svg);
  }
  return paths;
}

void write_step_charts(const std::string& out, std::span<const Json> rows) {
  for (const std::string& path : write_charts(out, "step", step_charts(rows)))
    fmt::print(stderr, "wrote {}\n", path);
}

}  // namespace kiln
