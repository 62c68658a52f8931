#include "studies/ablation/ablation_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

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

const AblationLine* find(std::span<const AblationLine> lines, const char* group) {
  const auto found = std::find_if(lines.begin(), lines.end(),
                                  [&](const AblationLine& l) { return word_at(l.row, "group") == group; });
  return found == lines.end() ? nullptr : &*found;
}

// How far from 1, whichever way.
double distance(const AblationLine& l) { return l.speed.ratio > 0 ? std::abs(std::log(l.speed.ratio)) : 0; }

// A test tells whether samples differ, not why. Identical code at another time differs too, on a GPU, whose
// samples lie close together, nearly always by more than chance: no row counts that is no further off.
void judge_by_itself(std::vector<AblationLine>& lines) {
  const AblationLine* again = find(lines, "again");
  if (again == nullptr || !again->timed()) return;
  const double noise = distance(*again);
  for (AblationLine& l : lines) {
    if (&l != again && l.speed.significant() && distance(l) <= noise)
      l.speed.verdict = Comparison::Verdict::same;
  }
}

std::string percent_off(const AblationLine& l) {
  const double percent = 100 * std::abs(1 - l.speed.ratio);
  return fmt::format("{} %",
                     percent < 0.1 ? fmt::format("{:.2f}", percent) : figure(std::round(10 * percent) / 10));
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

// The last of the added rows that was timed, by what it has on: all that could be, or up to which switch.
std::string name_of_sum(std::span<const AblationLine> lines, const AblationLine& sum) {
  const json on = sum.row.value("switches", json::array());
  std::vector<std::string> without;  // of those that come before it
  bool all = true, before = true;
  for (const AblationLine& l : lines) {
    if (word_at(l.row, "group") != "alone") continue;
    const std::string name = word_at(l.row, "switch"), gate = word_at(l.row, "gate");
    const bool possible = gate != "not available" && gate != "no effect";
    if (possible && std::find(on.begin(), on.end(), json(name)) == on.end()) {
      all = false;
      if (before) without.push_back(name);
    }
    before = before && name != word_at(sum.row, "switch");
  }
  if (all) return "all of them together";
  return fmt::format("up to {}{}{}", sum.label, without.empty() ? "" : " without ", fmt::join(without, ", "));
}

std::string against_itself(const AblationLine& again) {
  const std::string how = fmt::format("the baseline against itself, at the end, is {}", str(again.speed));
  if (again.speed.significant())
    return fmt::format(
        "{}: {} apart is the machine's doing, so rows no further from the baseline count as the same", how,
        percent_off(again));
  return fmt::format("{}, as it should be; rows no further than {} from the baseline count as the same", how,
                     percent_off(again));
}

}  // namespace

bool AblationLine::timed() const { return word_at(row, "gate") == "passed" && number_at(row, "p50_ms"); }

std::string AblationLine::gate_word() const {
  const std::string gate = word_at(row, "gate");
  return gate == "failed" ? "gate failed" : in_place_of_times(row);
}

double AblationLine::peak_mib() const { return number_at(row, "peak_bytes").value_or(0) / 0x1p20; }

std::string AblationLine::why() const {
  return timed() ? "" : fmt::format("{}: {}", gate_word(), word_at(row, "reason"));
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
    const std::vector<double> turns = samples_of(l.row, "baseline_samples"), own = samples_of(l.row);
    l.speed = turns.empty() ? compare(samples_of(baseline), own) : compare_turns(turns, own);
    if (l.speed.ratio == 0) l.speed.ratio = ratio_at(baseline, l.row, "p50_ms");
    l.baseline_ms = turns.empty() ? number_at(baseline, "p50_ms").value_or(0) : median_of(turns);
    if (l.row.value("ceilings", json()) == baseline.value("ceilings", json()))
      l.predicted = ratio_at(baseline, l.row, "predicted_ms");
    l.memory = ratio_at(l.row, baseline, "peak_bytes");
  }
  judge_by_itself(lines);
  return lines;
}

TextTable speedup_table(std::span<const AblationLine> lines) {
  TextTable table = {{"switch", "ms p50", "95 % of mean", "verdict", "baseline ms", "speed-up", "p",
                      "foretold", "tokens/s", "predicted ms", "floor ms"}};
  for (const AblationLine& l : lines) {
    if (!l.timed()) {
      table.push_back({l.label, l.gate_word(), "-", "-", "-", "-", "-", "-", "-", "-", "-"});
      continue;
    }
    const bool base = word_at(l.row, "group") == "baseline";
    const bool compared = !base && l.speed.ratio > 0;
    table.push_back(
        {l.label, figure_at(l.row, "p50_ms"),
         fmt::format("{} to {}", figure_at(l.row, "ci95_low_ms"), figure_at(l.row, "ci95_high_ms")),
         word_at(l.row, "verdict"), compared ? figure(l.baseline_ms) : "-", compared ? str(l.speed) : "-",
         compared ? fmt::format("{:.2g}", l.speed.p) : "-", base ? "-" : times(l.predicted),
         figure_at(l.row, "tokens_per_s"), figure_at(l.row, "predicted_ms"), figure_at(l.row, "floor_ms")});
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
    std::vector<std::string> cells = {l.label, l.timed() ? mebibytes_at(l.row, "peak_bytes") : l.gate_word(),
                                      mebibytes_at(l.row, "predicted_peak_bytes"),
                                      mebibytes_at(l.row, "floor_bytes"), times(l.memory)};
    const auto peaks = l.row.find("peak_by_tag");
    for (const std::string& tag : tags)
      cells.push_back(peaks != l.row.end() && peaks->is_object() ? mebibytes_at(*peaks, tag.c_str()) : "-");
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
    table.push_back({l.label, l.gate_word(), worst.empty() ? "-" : worst, error_cell(l.row, "logits"),
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
      said.push_back(fmt::format("{}, {} to {} ms: {}; peak memory {:.2f} to {:.2f} MiB, {}",
                                 name_of_sum(lines, *all), figure(all->baseline_ms),
                                 figure_at(all->row, "p50_ms"), str(all->speed), base->peak_mib(),
                                 all->peak_mib(), times(all->memory)));
    said.push_back(best == nullptr
                       ? "by itself none makes the step faster by more than chance"
                       : fmt::format("by itself {} gains most: {}", best->label, str(best->speed)));
    const std::string steps = word_at(base->row, "gate_steps");
    if (number_at(base->row, "baseline_last_loss"))
      said.push_back(
          fmt::format("gate: {} step{} of training take{} the baseline's loss from {:.4f} to {:.4f}", steps,
                      steps == "1" ? "" : "s", steps == "1" ? "s" : "",
                      number_at(base->row, "baseline_first_loss").value_or(0),
                      number_at(base->row, "baseline_last_loss").value_or(0)));
  }
  if (const AblationLine* again = find(lines, "again"); again != nullptr && again->timed())
    said.push_back(against_itself(*again));
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
