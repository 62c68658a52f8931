#include "studies/ablation/ablation_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "rows/row_status.h"
#include "rows/row_values.h"
#include "studies/ablation/ablation_columns.h"
#include "studies/format.h"

namespace kiln {
namespace {

std::string label_of(const Json& row) {
  const std::string group = text_at(row, "group"), name = text_at(row, "switch");
  return group == "baseline"  ? "baseline"
         : group == "again"   ? "baseline again"
         : group == "added"   ? "+" + name
         : group == "without" ? "-" + name
         : group == "ranks"   ? fmt::format("{}, {} ranks", name, text_at(row, "ranks"))
                              : name;
}

const AblationLine* find(std::span<const AblationLine> lines, const char* group) {
  const auto found = std::find_if(lines.begin(), lines.end(),
                                  [&](const AblationLine& l) { return text_at(l.row, "group") == group; });
  return found == lines.end() ? nullptr : &*found;
}

// How far from 1, whichever way.
double distance(const AblationLine& l) { return l.speed.ratio > 0 ? std::abs(std::log(l.speed.ratio)) : 0; }

// A test shows whether samples differ, not why. Identical code at another time differs too, on a GPU, whose
// samples lie close to each other, nearly always by more than chance: no row counts that is no further off.
void compare_with_itself(std::vector<AblationLine>& lines) {
  const AblationLine* again = find(lines, "again");
  if (again == nullptr || !again->timed()) return;
  const double noise = distance(*again);
  for (AblationLine& l : lines) {
    if (&l == again || !l.speed.significant() || distance(l) > noise) continue;
    l.speed.significance = Comparison::Significance::same;
    l.speed.noise = std::expm1(noise);
  }
}

std::string percent_off(const AblationLine& l) {
  const double percent = 100 * std::abs(1 - l.speed.ratio);
  return fmt::format("{} %",
                     percent < 0.1 ? fmt::format("{:.2f}", percent) : figure(std::round(10 * percent) / 10));
}

// One of the added rows by what it has on: all that could be, or up to which switch.
std::string name_of_sum(std::span<const AblationLine> lines, const AblationLine& sum) {
  const Json on = sum.row.value("switches", Json::array());
  std::vector<std::string> without;  // of those that come before it
  bool all = true, before = true;
  for (const AblationLine& l : lines) {
    if (text_at(l.row, "group") != "alone") continue;
    const std::string name = text_at(l.row, "switch");
    const RowStatus status = status_of(l.row);
    const bool possible = status != RowStatus::unavailable && status != RowStatus::skipped;
    if (possible && std::find(on.begin(), on.end(), Json(name)) == on.end()) {
      all = false;
      if (before) without.push_back(name);
    }
    before = before && name != text_at(sum.row, "switch");
  }
  if (all) return "all combined";
  return fmt::format("up to {}{}{}", sum.label, without.empty() ? "" : " without ", fmt::join(without, ", "));
}

std::string against_itself(const AblationLine& again) {
  return fmt::format(
      "the baseline measured again at the end, identical code: {}; rows within {} of the baseline "
      "count as the same",
      str(again.speed), percent_off(again));
}

// With the row it is compared with, which on the CPU took turns with it.
void compare_line(AblationLine& l, const Json& reference) {
  const std::vector<double> turns = samples_of(l.row, "baseline_samples"), own = samples_of(l.row);
  const bool ranks = text_at(l.row, "group") == "ranks";  // in rounds, and not step by step
  l.speed = turns.empty() ? compare(samples_of(reference), own)
            : ranks       ? compare(turns, own)
                          : compare_turns(turns, own);
  if (l.speed.ratio == 0 && !ranks) l.speed.ratio = ratio_at(reference, l.row, "p50_ms");
  l.baseline_ms = turns.empty() ? number_at(reference, "p50_ms").value_or(0) : median_of(turns);
  const auto naive = number_at(l.row, "baseline_peak_bytes");
  l.memory =
      ranks ? ratio_of(number_at(l.row, "peak_bytes"), naive) : ratio_at(l.row, reference, "peak_bytes");
  if (!ranks && l.row.value("ceilings", Json()) == reference.value("ceilings", Json()))
    l.own_roofline = ratio_of(own_roofline_of(reference), own_roofline_of(l.row));
}

}  // namespace

bool AblationLine::in_main_table() const {
  const std::string group = text_at(row, "group");
  return group != "without" && group != "ranks";
}

bool AblationLine::timed() const { return counts(row) && number_at(row, "p50_ms"); }

std::string AblationLine::gate_text() const { return ablation_gate_text(row); }

double AblationLine::peak_mib() const { return number_at(row, "peak_bytes").value_or(0) / 0x1p20; }

std::string AblationLine::why() const {
  return timed() ? "" : fmt::format("{}: {}", gate_text(), text_at(row, "reason"));
}

std::vector<AblationLine> ablation_lines(std::span<const Json> rows) {
  std::vector<AblationLine> lines;
  for (const Json& row : rows) {
    const std::string label = label_of(row);
    const auto known =
        std::find_if(lines.begin(), lines.end(), [&](const AblationLine& l) { return l.label == label; });
    if (known == lines.end())
      lines.push_back({row, label, {}});
    else
      known->row = row;
  }
  constexpr std::array kOrder = {"baseline", "alone", "added", "without", "ranks", "again"};
  const auto place = [&](const AblationLine& l) {
    return std::find(kOrder.begin(), kOrder.end(), text_at(l.row, "group")) - kOrder.begin();
  };
  std::stable_sort(lines.begin(), lines.end(),
                   [&](const AblationLine& a, const AblationLine& b) { return place(a) < place(b); });
  const AblationLine* base = find(lines, "baseline");
  if (base == nullptr || !base->timed()) return lines;
  const Json baseline = base->row;
  Json all = baseline;  // that are on together
  for (const AblationLine& l : lines)
    if (text_at(l.row, "group") == "added" && l.timed()) all = l.row;
  for (AblationLine& l : lines)
    if (l.timed()) compare_line(l, text_at(l.row, "group") == "without" ? all : baseline);
  compare_with_itself(lines);
  return lines;
}

Json AblationLine::figures() const {
  Json all = row;
  all["label"] = label;
  if (!timed()) {  // what a gate refused has no figures, whatever was stored
    for (const ColumnForm& c : timing_forms()) all.erase(c.key);
    for (const char* key :
         {"tokens_per_s", "own_roofline_ms", "predicted_ms", "roofline_ms", "floor_ms", "peak_bytes"})
      all.erase(key);
  } else if (speed.ratio > 0) {
    all["speedup"] = speed.ratio;
    all["speedup_text"] = str(speed);
    all["p"] = speed.p;
    all["significant"] = speed.significant() ? "yes" : "no";
    all["baseline_ms"] = baseline_ms;
    all["own_roofline_speedup"] = own_roofline;
  }
  if (memory > 0) all["memory_ratio"] = memory;
  const Json errors = row.value("gate_errors", Json());
  if (!errors.is_object()) return all;
  for (const char* key : {"logits", "gradients", "loss"})
    if (const auto error = number_at(errors, key)) all[cat(key, "_error")] = *error;
  if (const std::string worst = text_at(errors, "worst_gradient"); !worst.empty())
    all["worst_gradient"] = worst;
  return all;
}

namespace {

template <class Keep>
TextTable table_of(std::span<const AblationLine> lines, const std::vector<ColumnForm>& columns, bool wide,
                   Keep keep) {
  std::vector<Json> rows;
  for (const AblationLine& l : lines)
    if (keep(l)) rows.push_back(l.figures());
  return row_table(columns, rows, {.wide = wide}).lines;
}

}  // namespace

// In the main table what is shown; in CSV all of them.
std::vector<ColumnForm> ablation_main_columns() {
  std::vector<ColumnForm> columns =
      ablation_columns({"group", "switch", "status", "gate", "label", "p50_ms", "ci95_low_ms", "verdict",
                        "baseline_ms", "speedup", "p", "significant", "own_roofline_speedup", "tokens_per_s",
                        "own_roofline_ms", "roofline_ms"});
  for (ColumnForm c :
       ablation_columns({"mean_ms", "ci95_high_ms", "peak_bytes", "predicted_peak_bytes", "floor_bytes",
                         "memory_ratio", "logits_error", "gradients_error", "loss_error", "reason"})) {
    c.where = Where::stored;  // they have tables of their own
    columns.push_back(c);
  }
  return columns;
}

TextTable speedup_table(std::span<const AblationLine> lines) {
  return table_of(
      lines,
      ablation_columns({"label", "p50_ms", "ci95_low_ms", "verdict", "baseline_ms", "speedup", "p",
                        "own_roofline_speedup", "tokens_per_s", "own_roofline_ms", "roofline_ms"}),
      true, [](const AblationLine& l) { return l.in_main_table(); });
}

TextTable without_table(std::span<const AblationLine> lines) {
  std::vector<ColumnForm> columns =
      ablation_columns({"label", "p50_ms", "verdict", "baseline_ms", "speedup", "p", "own_roofline_speedup",
                        "peak_bytes", "memory_ratio"});
  for (ColumnForm& c : columns) {
    if (c.key == "baseline_ms") c.title = "all ms";
    if (c.key == "speedup") c.title = "against all";
    if (c.key == "memory_ratio") c.title = "of all";
  }
  return table_of(lines, columns, true,
                  [](const AblationLine& l) { return text_at(l.row, "group") == "without"; });
}

TextTable ranks_table(std::span<const AblationLine> lines) {
  std::vector<ColumnForm> columns =
      ablation_columns({"label", "p50_ms", "verdict", "baseline_ms", "speedup", "p", "tokens_per_s",
                        "peak_bytes", "memory_ratio", "param", "grad", "optim", "activation", "comm"});
  for (ColumnForm& c : columns) {
    if (c.key == "baseline_ms") c.title = "ddp:naive ms";
    if (c.key == "speedup") c.title = "against ddp:naive";
    if (c.key == "memory_ratio") c.title = "of ddp:naive's";
  }
  return table_of(lines, columns, true,
                  [](const AblationLine& l) { return text_at(l.row, "group") == "ranks"; });
}

TextTable ablation_memory_table(std::span<const AblationLine> lines) {
  return table_of(
      lines,
      ablation_columns({"label", "peak_bytes", "predicted_peak_bytes", "floor_bytes", "memory_ratio", "param",
                        "master", "grad", "optim", "activation", "workspace", "comm", "data"}),
      true, [](const AblationLine& l) { return l.in_main_table() && text_at(l.row, "group") != "again"; });
}

TextTable gate_table(std::span<const AblationLine> lines) {
  return table_of(lines,
                  ablation_columns({"label", "gate_word", "worst_gradient", "logits_error", "gradients_error",
                                    "loss_error"}),
                  true, [](const AblationLine& l) { return !text_at(l.row, "switch").empty(); });
}

namespace {

std::string name_in_words(std::span<const AblationLine> lines, const AblationLine& line) {
  return text_at(line.row, "group") == "added" ? name_of_sum(lines, line) : line.label;
}

std::string time_in_words(const AblationLine& l) {
  return fmt::format("{} to {} ms: {}", figure(l.baseline_ms), figure_at(l.row, "p50_ms"), str(l.speed));
}

std::string memory_in_words(const AblationLine& l, const AblationLine& base) {
  return fmt::format("peak memory {:.2f} to {:.2f} MiB, {}", base.peak_mib(), l.peak_mib(), times(l.memory));
}

// What one came for: the fastest row and the smallest, wherever they are in the study. Later switches may
// cost time, or memory, again.
void say_best(std::span<const AblationLine> lines, const AblationLine& base, std::vector<std::string>& said) {
  const AblationLine *fastest = nullptr, *smallest = nullptr, *best = nullptr;
  for (const AblationLine& l : lines) {
    const std::string group = text_at(l.row, "group");
    if (!l.timed() || (group != "alone" && group != "added")) continue;
    const bool faster = l.speed.significance == Comparison::Significance::faster;
    if (faster && (fastest == nullptr || l.speed.ratio > fastest->speed.ratio)) fastest = &l;
    if (faster && group == "alone" && (best == nullptr || l.speed.ratio > best->speed.ratio)) best = &l;
    if (l.memory > 0 && l.memory < 1 && (smallest == nullptr || l.memory < smallest->memory)) smallest = &l;
  }
  if (fastest != nullptr)
    said.push_back(fmt::format("{}: {}, {}; {}", fastest == smallest ? "fastest and smallest" : "fastest",
                               name_in_words(lines, *fastest), time_in_words(*fastest),
                               memory_in_words(*fastest, base)));
  if (smallest != nullptr && smallest != fastest)
    said.push_back(fmt::format("smallest: {}, {}; {}", name_in_words(lines, *smallest),
                               memory_in_words(*smallest, base), time_in_words(*smallest)));
  if (fastest == nullptr) said.emplace_back("no row is significantly faster than the baseline");
  if (smallest == nullptr) said.emplace_back("no row takes less memory than the baseline");
  said.push_back(best == nullptr ? "no single switch makes the step significantly faster"
                                 : fmt::format("largest single gain: {}, {}", best->label, str(best->speed)));
}

// Which of them the others cannot make up for, and which they can.
void say_without(std::span<const AblationLine> lines, std::vector<std::string>& said) {
  const AblationLine* missed = nullptr;
  std::vector<std::string> spare;
  bool any = false;
  for (const AblationLine& l : lines) {
    if (text_at(l.row, "group") != "without" || !l.timed()) continue;
    any = true;
    if (l.speed.significance == Comparison::Significance::slower &&
        (missed == nullptr || l.speed.ratio < missed->speed.ratio))
      missed = &l;
    if (l.speed.significance == Comparison::Significance::faster) spare.push_back(text_at(l.row, "switch"));
  }
  if (!any) return;
  said.push_back(
      missed == nullptr
          ? std::string(
                "taken away one at a time from all combined, none makes the step significantly slower")
          : fmt::format("most missed when taken away from all combined: {}, {}",
                        text_at(missed->row, "switch"), time_in_words(*missed)));
  if (!spare.empty())
    said.push_back(fmt::format("all combined is faster without {}", fmt::join(spare, ", without ")));
}

void say_ranks(std::span<const AblationLine> lines, std::vector<std::string>& said) {
  for (const AblationLine& l : lines) {
    if (text_at(l.row, "group") != "ranks" || !l.timed()) continue;
    said.push_back(fmt::format(
        "{} of one device ({} preset): {} against ddp:naive on the same ranks; peak memory of a rank {}; "
        "ranks that share a device say nothing of an interconnect",
        l.label, text_at(l.row, "preset"), time_in_words(l), times(l.memory)));
  }
}

}  // namespace

std::vector<std::string> ablation_sentences(std::span<const AblationLine> lines) {
  std::vector<std::string> said;
  const AblationLine* base = find(lines, "baseline");
  if (base == nullptr || !base->timed()) {
    said.emplace_back("there is no baseline among the rows, so nothing is compared");
  } else {
    say_best(lines, *base, said);
    say_without(lines, said);
    say_ranks(lines, said);
    const std::string steps = text_at(base->row, "gate_steps");
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
    if (text_at(l.row, "verdict") == "noisy") noisy.push_back(l.label);
    const std::string why = fmt::format("{}: {}", text_at(l.row, "switch"), l.why());
    if (l.timed() || std::find(known.begin(), known.end(), why) != known.end()) continue;
    known.push_back(why);  // what a machine cannot do it can do neither alone nor with others
    said.push_back(fmt::format("{}: {}", l.label, l.why()));
  }
  if (!noisy.empty()) said.push_back(fmt::format("noisy (±5 % not reached): {}", fmt::join(noisy, ", ")));
  return said;
}

Json speedups_json(std::span<const AblationLine> lines) {
  Json all = Json::array();
  for (const AblationLine& l : lines) {
    if (!l.timed()) continue;
    all.push_back({{"group", text_at(l.row, "group")},
                   {"switch", text_at(l.row, "switch")},
                   {"p50_ms", number_at(l.row, "p50_ms").value_or(0)},
                   {"speedup", l.speed.ratio},
                   {"p", l.speed.p},
                   {"verdict", name_of(l.speed.significance)},
                   {"significant", l.speed.significant()},
                   {"own_roofline_speedup", l.own_roofline},
                   {"memory_ratio", l.memory}});
  }
  return all;
}

}  // namespace kiln
