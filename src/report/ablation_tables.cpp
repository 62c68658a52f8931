#include "report/ablation_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "report/result_table.h"

namespace kiln {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string label_of(const json& row) {
  const std::string group = word_at(row, "group"), name = word_at(row, "switch");
  return group == "baseline" ? "baseline"
         : group == "again"  ? "baseline again"
         : group == "added"  ? "+" + name
                             : name;
}

double ratio_at(const json& a, const json& b, const char* key) {
  const auto x = number_at(a, key), y = number_at(b, key);
  return x && y && *y > 0 ? *x / *y : 0;
}

std::string times(double ratio) { return ratio > 0 ? fmt::format("{:.2f}x", ratio) : "-"; }

std::string shown(const json& row, const char* key) {
  const auto x = number_at(row, key);
  return x ? figure(*x) : "-";
}

std::string mebibytes(const json& row, const char* key) {
  const auto x = number_at(row, key);
  return x ? fmt::format("{:.2f}", *x / 0x1p20) : "-";
}

// In place of a time.
std::string gate_word(const AblationLine& line) {
  const std::string gate = word_at(line.row, "gate");
  return gate == "failed" ? "gate failed" : gate == "no memory" ? "OOM" : gate.empty() ? "-" : gate;
}

const AblationLine* find(std::span<const AblationLine> lines, const char* group) {
  const auto found = std::find_if(lines.begin(), lines.end(),
                                  [&](const AblationLine& l) { return word_at(l.row, "group") == group; });
  return found == lines.end() ? nullptr : &*found;
}

double peak_mib(const AblationLine& l) { return number_at(l.row, "peak_bytes").value_or(0) / 0x1p20; }

int series_of(const AblationLine& l) {
  const std::string group = word_at(l.row, "group");
  return group == "alone" ? 1 : group == "added" ? 2 : 0;
}

std::string study_name(std::span<const AblationLine> lines) {
  const json& row = lines.front().row;
  return fmt::format("{}, batch {}, context {}, {}", word_at(row, "size"), word_at(row, "batch"),
                     word_at(row, "ctx"), word_at(row, "device"));
}

// What the rows were judged by: of every gate the error beside what was allowed.
std::string error_cell(const json& row, const char* key) {
  const auto errors = row.find("gate_errors"), allowed = row.find("gate_tolerances");
  if (errors == row.end() || allowed == row.end() || !errors->is_object() || !allowed->is_object())
    return "-";
  const auto error = number_at(*errors, key), most = number_at(*allowed, key);
  if (!most) return "-";
  return error ? fmt::format("{:.1e} of {:.1e}", *error, *most) : fmt::format("not finite, of {:.1e}", *most);
}

}  // namespace

bool AblationLine::timed() const { return word_at(row, "gate") == "passed" && number_at(row, "p50_ms"); }

std::string AblationLine::why() const {
  return timed() ? "" : fmt::format("{}: {}", gate_word(*this), word_at(row, "reason"));
}

std::vector<AblationLine> ablation_lines(std::span<const json> rows) {
  std::vector<AblationLine> lines;
  for (const json& row : rows) {
    const std::string label = label_of(row);
    const auto known =
        std::find_if(lines.begin(), lines.end(), [&](const AblationLine& l) { return l.label == label; });
    if (known == lines.end())
      lines.push_back({row, label, {}});
    else
      known->row = row;
  }
  constexpr std::array kOrder = {"baseline", "alone", "added", "again"};
  const auto place = [&](const AblationLine& l) {
    return std::find(kOrder.begin(), kOrder.end(), word_at(l.row, "group")) - kOrder.begin();
  };
  std::stable_sort(lines.begin(), lines.end(),
                   [&](const AblationLine& a, const AblationLine& b) { return place(a) < place(b); });
  const AblationLine* base = find(lines, "baseline");
  if (base == nullptr || !base->timed()) return lines;
  const json baseline = base->row;
  for (AblationLine& l : lines) {
    if (!l.timed()) continue;
    const std::vector<double> turns = samples_of(l.row, "baseline_samples");
    l.speed = compare(turns.empty() ? samples_of(baseline) : turns, samples_of(l.row));
    if (l.speed.ratio == 0) l.speed.ratio = ratio_at(baseline, l.row, "p50_ms");
    l.baseline_ms = l.speed.ratio * number_at(l.row, "p50_ms").value_or(0);
    l.predicted = ratio_at(baseline, l.row, "predicted_ms");
    l.memory = ratio_at(l.row, baseline, "peak_bytes");
  }
  return lines;
}

TextTable speedup_table(std::span<const AblationLine> lines) {
  TextTable table = {{"switch", "ms p50", "95 % of mean", "verdict", "baseline ms", "speed-up", "p",
                      "foretold", "tokens/s", "predicted ms", "floor ms"}};
  for (const AblationLine& l : lines) {
    if (!l.timed()) {
      table.push_back({l.label, gate_word(l), "-", "-", "-", "-", "-", "-", "-", "-", "-"});
      continue;
    }
    const bool base = word_at(l.row, "group") == "baseline";
    const bool compared = !base && l.speed.ratio > 0;
    table.push_back({l.label, shown(l.row, "p50_ms"),
                     fmt::format("{} to {}", shown(l.row, "ci95_low_ms"), shown(l.row, "ci95_high_ms")),
                     word_at(l.row, "verdict"), compared ? figure(l.baseline_ms) : "-",
                     compared ? str(l.speed) : "-", compared ? fmt::format("{:.2g}", l.speed.p) : "-",
                     base ? "-" : times(l.predicted), shown(l.row, "tokens_per_s"),
                     shown(l.row, "predicted_ms"), shown(l.row, "floor_ms")});
  }
  return table;
}

TextTable ablation_memory_table(std::span<const AblationLine> lines) {
  std::vector<std::string> tags;  // those some row has, in the order they come
  for (const AblationLine& l : lines) {
    const auto peaks = l.row.find("peak_by_tag");
    if (peaks == l.row.end() || !peaks->is_object()) continue;
    for (const auto& [tag, bytes] : peaks->items()) {
      if (std::find(tags.begin(), tags.end(), tag) == tags.end()) tags.push_back(tag);
    }
  }
  TextTable table = {{"switch", "peak MiB", "predicted", "floor", "of baseline"}};
  table.front().insert(table.front().end(), tags.begin(), tags.end());
  for (const AblationLine& l : lines) {
    if (word_at(l.row, "group") == "again") continue;
    std::vector<std::string> cells = {l.label, l.timed() ? mebibytes(l.row, "peak_bytes") : gate_word(l),
                                      mebibytes(l.row, "predicted_peak_bytes"),
                                      mebibytes(l.row, "floor_bytes"), times(l.memory)};
    const auto peaks = l.row.find("peak_by_tag");
    for (const std::string& tag : tags)
      cells.push_back(peaks != l.row.end() && peaks->is_object() ? mebibytes(*peaks, tag.c_str()) : "-");
    table.push_back(std::move(cells));
  }
  return table;
}

TextTable gate_table(std::span<const AblationLine> lines) {
  TextTable table = {{"switch", "gate", "furthest parameter", "logits", "gradients", "loss"}};
  for (const AblationLine& l : lines) {
    if (word_at(l.row, "switch").empty()) continue;
    const auto errors = l.row.find("gate_errors");
    const std::string worst = errors == l.row.end() ? "" : word_at(*errors, "worst_gradient");
    table.push_back({l.label, gate_word(l), worst.empty() ? "-" : worst, error_cell(l.row, "logits"),
                     error_cell(l.row, "gradients"), error_cell(l.row, "loss")});
  }
  return table;
}

std::vector<std::string> ablation_sentences(std::span<const AblationLine> lines) {
  std::vector<std::string> said;
  const AblationLine *base = find(lines, "baseline"), *all = nullptr, *best = nullptr;
  for (const AblationLine& l : lines) {
    const std::string group = word_at(l.row, "group");
    if (!l.timed()) continue;
    if (group == "added") all = &l;
    if (group == "alone" && l.speed.verdict == Comparison::Verdict::faster &&
        (best == nullptr || l.speed.ratio > best->speed.ratio))
      best = &l;
  }
  if (base == nullptr || !base->timed()) {
    said.emplace_back("there is no baseline among the rows, so nothing is compared");
  } else {
    if (all != nullptr)
      said.push_back(
          fmt::format("all of them together, {} to {} ms: {}; peak memory {:.2f} to {:.2f} MiB, {}",
                      figure(all->baseline_ms), shown(all->row, "p50_ms"), str(all->speed), peak_mib(*base),
                      peak_mib(*all), times(all->memory)));
    said.push_back(best == nullptr
                       ? "by itself none makes the step faster by more than chance"
                       : fmt::format("by itself {} gains most: {}", best->label, str(best->speed)));
    if (number_at(base->row, "baseline_last_loss"))
      said.push_back(fmt::format("gate: {} steps of training take the baseline's loss from {:.4f} to {:.4f}",
                                 word_at(base->row, "gate_steps"),
                                 number_at(base->row, "baseline_first_loss").value_or(0),
                                 number_at(base->row, "baseline_last_loss").value_or(0)));
  }
  if (const AblationLine* again = find(lines, "again"); again != nullptr && again->timed())
    said.push_back(
        again->speed.significant()
            ? fmt::format("the baseline against itself, at the end, is {}: differences smaller than that "
                          "are the machine's",
                          str(again->speed))
            : fmt::format("the baseline against itself, at the end, is {}, as it should be",
                          str(again->speed)));
  std::vector<std::string> noisy, known;
  for (const AblationLine& l : lines) {
    if (word_at(l.row, "verdict") == "noisy") noisy.push_back(l.label);
    const std::string why = fmt::format("{}: {}", word_at(l.row, "switch"), l.why());
    if (l.timed() || std::find(known.begin(), known.end(), why) != known.end()) continue;
    known.push_back(why);  // what a machine cannot do it can do neither alone nor with others
    said.push_back(fmt::format("{}: {}", l.label, l.why()));
  }
  if (!noisy.empty())
    said.push_back(fmt::format("noisy, their means are not known to 5 %: {}", fmt::join(noisy, ", ")));
  return said;
}

BarChart speedup_chart(std::span<const AblationLine> lines) {
  BarChart chart;
  chart.title = "Speed-up over the baseline: " + study_name(lines);
  chart.series = {"baseline", "by itself", "added up"};
  chart.marker = "foretold by operations and bytes";
  chart.axis = "times as fast as the baseline";
  chart.reference = 1;
  for (const AblationLine& l : lines) {
    Bar bar{l.label, std::nullopt, gate_word(l), std::nullopt, series_of(l)};
    if (l.timed() && l.speed.ratio > 0) {
      bar.value = l.speed.ratio;
      bar.text = word_at(l.row, "group") == "baseline"
                     ? fmt::format("{} ms", shown(l.row, "p50_ms"))
                     : fmt::format("{}, {} ms", str(l.speed), shown(l.row, "p50_ms"));
      if (l.predicted > 0) bar.marker = l.predicted;
    }
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

BarChart ablation_memory_chart(std::span<const AblationLine> lines) {
  BarChart chart;
  chart.title = "Peak memory of a step: " + study_name(lines);
  chart.series = {"baseline", "by itself", "added up"};
  chart.marker = "predicted";
  chart.axis = "MiB";
  for (const AblationLine& l : lines) {
    if (word_at(l.row, "group") == "again") continue;
    Bar bar{l.label, std::nullopt, gate_word(l), std::nullopt, series_of(l)};
    if (l.timed()) {
      bar.value = peak_mib(l);
      bar.text = fmt::format("{:.2f}{}", *bar.value, l.memory > 0 ? ", " + times(l.memory) : "");
      if (const auto p = number_at(l.row, "predicted_peak_bytes")) bar.marker = *p / 0x1p20;
    }
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

ordered_json speedups_json(std::span<const AblationLine> lines) {
  ordered_json all = ordered_json::array();
  for (const AblationLine& l : lines) {
    if (!l.timed()) continue;
    all.push_back({{"group", word_at(l.row, "group")},
                   {"switch", word_at(l.row, "switch")},
                   {"p50_ms", number_at(l.row, "p50_ms").value_or(0)},
                   {"speedup", l.speed.ratio},
                   {"p", l.speed.p},
                   {"verdict", name_of(l.speed.verdict)},
                   {"significant", l.speed.significant()},
                   {"predicted_speedup", l.predicted},
                   {"memory_ratio", l.memory}});
  }
  return all;
}

}  // namespace kiln
