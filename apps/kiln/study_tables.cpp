#include "kiln/study_tables.h"

#include <fmt/format.h>

#include "studies/op/op_studies.h"
#include "report/step_studies.h"
#include "studies/sweep/variance_table.h"
#include "studies/warmup/warmup_tables.h"

namespace kiln::cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string titled(const std::string& title, const TextTable& table, std::size_t left, PageFormat format) {
  return heading(title, format) + written(table, left, format);
}

constexpr const char* kStepOptions[] = {"size", "mode", "dtype", "batch", "ctx", "preset", "recompute"};
constexpr const char* kAttentionOptions[] = {"dtype", "batch", "heads", "seq", "d", "variant", "pass"};

bool is_attention(const std::string& command) {
  return command.starts_with("bench attention") || command.starts_with("bench flash");
}

std::string variance_page(std::span<const json> rows, std::span<const char* const> options,
                          PageFormat format) {
  const auto shares = variance_shares(rows, options);
  if (shares.empty()) return {};
  return titled("what the time varies with: share of the variance of its logarithm", variance_table(shares),
                1, format);
}

std::string step_page(std::span<const json> rows, PageFormat format) {
  std::string text;
  if (const auto pairs = step_pairs(rows); !pairs.empty())
    text += titled("one against the other: how many times faster, by ranks of all samples", pair_table(pairs),
                   5, format);
  if (const auto laws = step_scaling(rows); !laws.empty())
    text += titled("how the time grows: time ~ x^exponent, beside what operations and bytes foretell",
                   scaling_table(laws), 2, format);
  return text + variance_page(rows, kStepOptions, format);
}

std::string op_page(std::span<const json> rows, PageFormat format) {
  std::string text;
  std::vector<Ladder> ladders = op_ladders(rows);
  constexpr std::size_t kMostLadders =
      4;  // of a sweep over many shapes the last one shows it; --json has all
  if (ladders.size() > kMostLadders) ladders.erase(ladders.begin(), ladders.end() - 1);
  for (const Ladder& ladder : ladders)
    text += titled(fmt::format("ladder of {} {} {}: each rung beside the one before", ladder.op, ladder.shape,
                               ladder.dtype),
                   ladder_table(ladder), 1, format);
  if (const auto all = op_crossovers(rows); !all.empty())
    text +=
        titled("where it pays: against the faster of naive and composed", crossover_table(all), 6, format);
  return text;
}

std::string warmup_page(std::span<const json> rows, PageFormat format) {
  const TextTable steps = warmup_table(rows), first = first_step_table(rows);
  std::string text;
  if (steps.size() > 1)
    text += titled("every step, each in a program that had done nothing before", steps, 3, format);
  if (first.size() > 1) text += titled("where the first step's time goes", first, 1, format);
  return text;
}

}  // namespace

std::vector<json> rows_of(const std::vector<std::string>& result_lines) {
  std::vector<json> rows;
  rows.reserve(result_lines.size());
  for (const std::string& line : result_lines) rows.push_back(json::parse(line));
  return rows;
}

std::string studies_page(const std::string& command, std::span<const json> rows, PageFormat format) {
  if (command.starts_with("bench step")) return step_page(rows, format);
  if (command.starts_with("bench op")) return op_page(rows, format);
  if (command.starts_with("bench warmup")) return warmup_page(rows, format);
  if (is_attention(command)) return variance_page(rows, kAttentionOptions, format);
  return {};
}

ordered_json studies_json(const std::string& command, std::span<const json> rows) {
  ordered_json studies = ordered_json::object();
  if (command.starts_with("bench step")) {
    studies["pairs"] = pairs_json(step_pairs(rows));
    studies["scaling"] = scaling_json(step_scaling(rows));
    studies["variance"] = variance_json(variance_shares(rows, kStepOptions));
  } else if (command.starts_with("bench op")) {
    studies["ladders"] = ladders_json(op_ladders(rows));
    studies["crossovers"] = crossovers_json(op_crossovers(rows));
  } else if (is_attention(command)) {
    studies["variance"] = variance_json(variance_shares(rows, kAttentionOptions));
  }
  return studies;
}

std::string remark(const std::string& line, PageFormat format) {
  switch (format) {
    case PageFormat::markdown:
      return fmt::format("\n{}.\n", line);
    case PageFormat::latex:
      return fmt::format("% {}\n", line);
    case PageFormat::csv:
      return {};
    default:
      return line + "\n";
  }
}

std::string heading(const std::string& line, PageFormat format) {
  switch (format) {
    case PageFormat::markdown:
      return fmt::format("\n{}:\n\n", line);
    case PageFormat::latex:
      return fmt::format("\n% {}\n", line);
    default:
      return fmt::format("\n{}\n", line);
  }
}

}  // namespace kiln::cli
