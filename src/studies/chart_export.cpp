#include "kiln/bench_charts.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/error.h"
#include "kiln/bench_options.h"
#include "studies/step/step_charts.h"

namespace kiln::cli {

bool read_chart_export(const std::string& text) { return index_of("--export", text, {"none", "svg"}) == 1; }

std::vector<std::string> write_pictures(const std::string& out, const std::string& group,
                                        std::span<const NamedPicture> pictures) {
  const std::filesystem::path folder = std::filesystem::path(out) / group;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw Error(fmt::format("cannot write to {}: {}", folder.string(), error.message()),
                "name another folder with --out");
  std::vector<std::string> paths;
  for (const NamedPicture& p : pictures) {
    paths.push_back((folder / fmt::format("{}.svg", p.name)).string());
    write_file_atomically(paths.back(), p.svg);
  }
  return paths;
}

void write_step_charts(const std::string& out, std::span<const nlohmann::json> rows) {
  for (const std::string& path : write_pictures(out, "step", step_charts(rows)))
    fmt::print(stderr, "wrote {}\n", path);
}

}  // namespace kiln::cli
