#include "studies/report/run_rows.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/json_reader.h"
#include "perf/timing/statistics.h"
#include "report/text/escape.h"
#include "rows/row_values.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMostBytes = 64 << 20;
constexpr std::size_t kMostRuns = 12, kMostPoints = 400;  // what a chart can show
constexpr JsonLimits kLineLimits{.max_bytes = std::size_t{1} << 20, .max_depth = 16};

std::optional<std::string> content(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > kMostBytes) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

struct Curve {
  Json steps = Json::array(), losses = Json::array();
  void add(double step, double loss) {
    steps.push_back(step);
    losses.push_back(loss);
  }
};

// Every n-th point and the last, so that no curve has more than a chart can show.
Curve thinned(const Curve& all) {
  Curve kept;
  const std::size_t every = std::max<std::size_t>(1, all.steps.size() / kMostPoints);
  for (std::size_t i = 0; i < all.steps.size(); ++i)
    if (i % every == 0 || i + 1 == all.steps.size())
      kept.add(all.steps[i].get<double>(), all.losses[i].get<double>());
  return kept;
}

void add_build(const fs::path& folder, Json& row) {
  const auto text = content(folder / "run.json");
  if (!text) return;
  try {
    const Json run = parse_json(*text, kLineLimits, "run.json");
    if (const Json* build = run.find("build")) row["build_id"] = text_at(*build, "id");
    if (const Json* machine = run.find("machine")) row["device"] = text_at(*machine, "device");
    if (const Json* options = run.find("options"))
      for (const char* key : {"precision", "preset", "batch", "context"}) row[key] = text_at(*options, key);
  } catch (const Error&) {  // the curve says what it says without
  }
}

std::optional<Json> row_of(const fs::path& folder) {
  const auto text = content(folder / "metrics.jsonl");
  if (!text) return std::nullopt;
  Curve train, val;
  std::vector<double> rates;
  for (std::size_t from = 0; from < text->size();) {
    const std::size_t end = text->find('\n', from);
    if (end == std::string::npos) break;  // being written
    try {
      const Json line =
          parse_json(std::string_view(*text).substr(from, end - from), kLineLimits, "metrics.jsonl");
      const auto step = number_at(line, "step"), loss = number_at(line, "loss"),
                 validation = number_at(line, "validation_loss");
      const auto seconds = number_at(line, "seconds"), tokens = number_at(line, "tokens");
      if (step && loss) train.add(*step, *loss);
      if (step && validation) val.add(*step, *validation);
      if (seconds && tokens && *seconds > 0) rates.push_back(*tokens / *seconds);
    } catch (const Error&) {
    }
    from = end + 1;
  }
  if (train.steps.size() < 2) return std::nullopt;
  Json row = {{"command", "train"},
              {"status", "ok"},
              {"gate", "not-verified"},
              {"run", shown_text(folder.filename().string())}};
  row["last_step"] = train.steps.back();
  row["first_loss"] = train.losses.front();
  row["last_loss"] = train.losses.back();
  if (!rates.empty()) row["tokens_per_s"] = median_of(rates);
  if (val.steps.size() > 0) row["last_val_loss"] = val.losses.back();
  const Curve a = thinned(train), b = thinned(val);
  row["steps"] = a.steps;
  row["losses"] = a.losses;
  row["val_steps"] = b.steps;
  row["val_losses"] = b.losses;
  add_build(folder, row);
  return row;
}

}  // namespace

std::vector<Json> run_rows(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> folders = {fs::path(folder)};
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory(error)) folders.push_back(entry.path());
  std::sort(folders.begin() + 1, folders.end());
  std::vector<Json> rows;
  for (const fs::path& each : folders) {
    if (rows.size() == kMostRuns) break;
    if (std::optional<Json> row = row_of(each)) rows.push_back(std::move(*row));
  }
  return rows;
}

}  // namespace kiln
