// The three tables of a training optimization study: speed-up, memory, theory against practice.
#include <fmt/format.h>

#include <algorithm>

#include "base/plain_number.h"
#include "studies/ablation/ablation_charts.h"
#include "studies/ablation/ablation_tables.h"
#include "studies/compare/render.h"
#include "studies/report/chapters/row_facts.h"

namespace kiln {
namespace {

// Of several studies the newest.
std::vector<AblationLine> newest_study(Rows rows) {
  if (rows.empty()) return {};
  const std::string study = text_at(rows.back(), "study");
  return ablation_lines(rows_where(rows, [&](const Json& r) { return text_at(r, "study") == study; }));
}

std::string study_name(const std::vector<AblationLine>& lines) {
  const Json& r = lines.front().row;
  return fmt::format("{}, batch {}, context {}", text_at(r, "size"), text_at(r, "batch"), text_at(r, "ctx"));
}

Answer speed(Rows rows) {
  const std::vector<AblationLine> lines = newest_study(rows);
  if (lines.empty() ||
      !std::any_of(lines.begin(), lines.end(), [](const AblationLine& l) { return l.timed(); }))
    return {};
  Answer a;
  for (const std::string& s : ablation_sentences(lines)) a.sentences.push_back(capitalized(s) + ".");
  a.tables.push_back({study_name(lines), speedup_table(lines), 1, false, {}});
  if (TextTable without = without_table(lines); without.size() > 1)
    a.tables.push_back({"taken away from all combined, one at a time", std::move(without), 1, false, {}});
  if (TextTable ranks = ranks_table(lines); ranks.size() > 1)
    a.tables.push_back(
        {"on several ranks of one device, against ddp:naive on the same", std::move(ranks), 1, false, {}});
  a.charts.push_back(
      {{"speedup", bar_chart_svg(speedup_chart(lines))}, "speed-up of every row of the ablation"});
  return a;
}

Answer memory(Rows rows) {
  const std::vector<AblationLine> lines = newest_study(rows);
  Answer a;
  const AblationLine *base = nullptr, *least_of = nullptr;
  for (const AblationLine& l : lines) {
    if (!l.timed() || !l.in_main_table()) continue;
    if (l.label == "baseline") base = &l;
    if (l.memory > 0 && (least_of == nullptr || l.memory < least_of->memory)) least_of = &l;
  }
  if (base == nullptr || least_of == nullptr) return a;
  a.sentences.push_back(fmt::format("The baseline peaks at {}, {} at {} ({}).",
                                    bytes_text(0x1p20 * base->peak_mib()), least_of->label,
                                    bytes_text(0x1p20 * least_of->peak_mib()), times(least_of->memory)));
  a.tables.push_back({fmt::format("{}, MiB", study_name(lines)), ablation_memory_table(lines), 1, false, {}});
  a.charts.push_back({{"memory-of-switches", bar_chart_svg(ablation_memory_chart(lines))},
                      "peak memory of every row of the ablation"});
  return a;
}

std::vector<Json> compared(Rows rows) {
  return rows_where(timed_rows(rows),
                    [](const Json& r) { return number_at(r, "roofline_ms") && number_at(r, "measured_ms"); });
}

Answer theory(Rows all) {
  const std::vector<Json> rows = compared(all);
  Answer a;
  for (const Json& row : rows) {
    const Json* list = row.find("causes");
    std::vector<std::string> words;
    if (list != nullptr && list->is_array())
      for (const Json& cause : *list) {
        if (words.size() == 4) break;
        words.push_back(
            fmt::format("{} {}", text_at(cause, "name"), ms_text(number_at(cause, "ms").value_or(0))));
      }
    const auto predicted = number_at(row, "predicted_ms");
    const double measured = *number_at(row, "measured_ms");
    a.sentences.push_back(
        fmt::format("{}, {}, {}: roofline {}, measured {}{}{}.", text_at(row, "size"), text_at(row, "dtype"),
                    text_at(row, "preset"), ms_text(*number_at(row, "roofline_ms")), ms_text(measured),
                    predicted ? fmt::format(", predicted {} ({} off)", ms_text(*predicted),
                                            percent_text(std::abs(*predicted / measured - 1)))
                              : "",
                    words.empty() ? "" : fmt::format("; the gap is {}", listed(words))));
  }
  if (rows.empty()) return a;
  a.tables.push_back(
      facts_table("", rows,
                  {{"size", "size", Unit::text, Where::table},
                   {"dtype", "precision", Unit::text, Where::table},
                   {"preset", "preset", Unit::text, Where::table},
                   {"flops",
                    "FLOP",
                    Unit::number,
                    Where::table,
                    {},
                    [](const Json& r) { return prefixed_figure(number_at(r, "flops").value_or(0)); }},
                   {"roofline_ms", "roofline ms", Unit::milliseconds, Where::table},
                   {"predicted_ms", "predicted ms", Unit::milliseconds, Where::table},
                   {"measured_ms", "measured ms", Unit::milliseconds, Where::table},
                   {"gap_ms", "gap ms", Unit::milliseconds, Where::table},
                   {"of_roofline", "of roofline", Unit::percent, Where::table},
                   {"peak_bytes", "peak MiB", Unit::bytes, Where::table}}));
  return a;
}

// Every op at its intensity and rate, below the two roofs.
std::vector<AnswerChart> roofline(const Json& step, const std::vector<Json>& ops) {
  const auto compute = number_at(step, "flops_per_s"), bandwidth = number_at(step, "bytes_per_s");
  if (!compute || !bandwidth || *compute <= 0 || *bandwidth <= 0) return {};
  LineChart chart{.title = fmt::format("Roofline of {}, {}", text_at(step, "size"), text_at(step, "dtype")),
                  .below_title = "each op by what it computes a byte; lines: memory and compute roofs",
                  .x_label = "FLOP a byte",
                  .y_label = "GFLOP/s",
                  .x_ticks = {},
                  .lines = {},
                  .style_names = {"measured", "", "roof"}};
  double low = *compute / *bandwidth, high = low;
  for (const Json& op : ops) {
    const double flops = number_at(op, "flops").value_or(0), bytes = number_at(op, "bytes").value_or(0),
                 ms = number_at(op, "measured_ms").value_or(0);
    if (!(flops > 0 && bytes > 0 && ms > 0)) continue;
    low = std::min(low, flops / bytes);
    high = std::max(high, flops / bytes);
    const std::size_t colour = chart.lines.size();
    chart.lines.push_back({fmt::format("{} {}", text_at(op, "op"), text_at(op, "pass")),
                           colour,
                           LineStyle::measured,
                           {{flops / bytes, flops / ms / 1e6}}});
  }
  if (chart.lines.empty()) return {};
  const double ridge = *compute / *bandwidth;
  chart.lines.push_back(
      {"",
       7,
       LineStyle::floor,
       {{low / 2, low / 2 * *bandwidth / 1e9}, {ridge, *compute / 1e9}, {high * 2, *compute / 1e9}}});
  for (double tick = 1e-3; tick <= 1e5; tick *= 10)
    if (tick >= low / 2 && tick <= high * 2) chart.x_ticks.push_back({tick, plain(tick, 4)});
  return {{{"roofline", line_chart_svg(chart)}, "roofline with the ops of the step"}};
}

// Why, op by op, of the newest step.
Answer causes(Rows all) {
  const std::vector<Json> rows = compared(all);
  if (rows.empty() || !rows.back().contains("by_op") || !rows.back().at("by_op").is_array()) return {};
  const Json& list = rows.back().at("by_op");
  std::vector<Json> ops(list.begin(), list.end());
  std::stable_sort(ops.begin(), ops.end(), [](const Json& a, const Json& b) {
    return number_at(a, "gap_ms").value_or(0) > number_at(b, "gap_ms").value_or(0);
  });
  const std::vector<Json> all_ops = ops;
  constexpr std::size_t kMost = 12;
  if (ops.size() > kMost) ops.resize(kMost);
  if (ops.empty()) return {};
  Answer a;
  const auto why = [](const Json& op) {
    const Json* causes = op.find("causes");
    if (causes == nullptr || !causes->is_array() || causes->empty()) return std::string("-");
    return fmt::format("{}: {}", text_at(causes->front(), "name"), text_at(causes->front(), "evidence"));
  };
  a.sentences.push_back(
      fmt::format("The largest gap is of {}{}{}, {} above its roofline: {}.", text_at(ops.front(), "op"),
                  text_at(ops.front(), "pass").empty() ? "" : " ", text_at(ops.front(), "pass"),
                  ms_text(number_at(ops.front(), "gap_ms").value_or(0)), why(ops.front())));
  a.tables.push_back(facts_table("the largest gaps", ops,
                                 {{"op", "op", Unit::text, Where::table},
                                  {"variant", "variant", Unit::text, Where::table},
                                  {"pass", "pass", Unit::text, Where::table},
                                  {"", "first cause", Unit::text, Where::table, {}, why},
                                  {"roofline_ms", "roofline ms", Unit::milliseconds, Where::table},
                                  {"predicted_ms", "predicted ms", Unit::milliseconds, Where::table},
                                  {"measured_ms", "measured ms", Unit::milliseconds, Where::table},
                                  {"gap_ms", "gap ms", Unit::milliseconds, Where::table}}));
  a.charts = roofline(rows.back(), all_ops);
  return a;
}

constexpr Question kQuestions[] = {
    {"", "ablation", "Speed-up of each optimization", {"ablate"}, speed, "kiln ablate --quick"},
    {"", "ablation", "Memory of each optimization", {"ablate"}, memory, "kiln ablate --quick"},
};
constexpr Question kTheory[] = {
    {"",
     "theory_practice",
     "Roofline, prediction and measurement of a step",
     {"compare"},
     theory,
     "kiln compare --size tiny --batch 2 --ctx 128"},
    {"",
     "theory_practice",
     "Where the difference comes from",
     {"compare"},
     causes,
     "kiln compare --size tiny --batch 2 --ctx 128"},
};

}  // namespace

Chapter optimizations_chapter() { return {"optimizations", "Optimizations", kQuestions}; }
Chapter theory_chapter() { return {"theory", "Theory against practice", kTheory}; }

}  // namespace kiln
