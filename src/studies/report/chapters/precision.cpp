// What 16 bits do to sums, tensors, norms and to the time of a step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/plain_number.h"
#include "studies/report/chapters/row_facts.h"
#include "studies/step/step_charts.h"
#include "studies/step/step_studies.h"

namespace kiln {
namespace {

// The list that a document of `kiln precision` has; empty where the row is none.
Json list_at(const Json& row, std::string_view key) {
  const Json* list = row.find(key);
  return list != nullptr && list->is_array() ? *list : Json::array();
}

Answer sums(Rows rows) {
  Answer a;
  for (const Json& study : rows) {
    const Json list = list_at(study, "rows");
    const auto exact = number_at(study, "exact");
    if (list.empty() || !exact) continue;
    const std::vector<Json> lines(list.begin(), list.end());
    a = {};
    std::vector<std::string> words;
    for (const Json& line : lines)
      if (const auto sum = number_at(line, "sum"); sum && word_is(line, "method", "plain"))
        words.push_back(fmt::format("{}: {}", text_at(line, "label"), plain(*sum, 9)));
    a.sentences.push_back(fmt::format("{} added {} times in sequence; exactly {}. {}.",
                                      text_at(study, "value"), text_at(study, "count"), plain(*exact, 9),
                                      fmt::format("{}", fmt::join(words, "; "))));
    const auto off = [](const Json& l) { return std::abs(number_at(l, "error").value_or(0)); };
    const auto worst = std::max_element(lines.begin(), lines.end(),
                                        [&](const Json& x, const Json& y) { return off(x) < off(y); });
    a.sentences.push_back(fmt::format("Farthest off is `{}`, by {}; limited by {}.", text_at(*worst, "label"),
                                      plain(number_at(*worst, "error").value_or(0)),
                                      text_at(*worst, "limited_by")));
    a.tables.push_back(facts_table("", lines,
                                   {{"label", "sum += added", Unit::text, Where::table},
                                    {"sum",
                                     "sum",
                                     Unit::number,
                                     Where::table,
                                     {},
                                     [](const Json& r) { return plain(number_at(r, "sum").value_or(0), 9); }},
                                    {"error",
                                     "error",
                                     Unit::number,
                                     Where::table,
                                     {},
                                     [](const Json& r) { return plain(number_at(r, "error").value_or(0)); }},
                                    {"limited_by", "limited by", Unit::text, Where::table}}));
  }
  return a;
}

Answer toy_model(Rows rows) {
  Answer a;
  for (const Json& study : rows) {
    const Json list = list_at(study, "runs");
    if (list.empty()) continue;
    a = {};
    TextTable table = {{"tensor"}};
    for (const Json& run : list) {
      const Json tensors = list_at(run, "tensors");
      table.front().push_back(fmt::format("{} ({})", text_at(run, "precision"), text_at(run, "compute")));
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (table.size() <= i + 1) table.push_back({text_at(tensors[i], "name")});
        table[i + 1].push_back(text_at(tensors[i], "dtype"));
      }
      if (text_at(run, "precision").find("autocast") == std::string::npos) continue;
      std::vector<std::string> words;
      for (const Json& t : tensors)
        words.push_back(fmt::format("{} {}", text_at(t, "name"), text_at(t, "dtype")));
      a.sentences.push_back(fmt::format("Under {} ({}): {}.", text_at(run, "precision"),
                                        text_at(run, "compute"), listed(words)));
    }
    for (auto& line : table) line.resize(table.front().size());
    a.tables.push_back({"", std::move(table), 9, false, {}});
  }
  return a;
}

Answer layer_norm(Rows rows) {
  Answer a;
  for (const Json& study : rows) {
    const std::string fp16 = text_at(study, "answer_fp16"), bf16 = text_at(study, "answer_bf16");
    if (fp16.empty() && bf16.empty()) continue;
    a = {};
    for (const std::string& text : {fp16, bf16})
      if (!text.empty()) a.sentences.push_back(fmt::format("{}.", capitalized(text)));
  }
  return a;
}

Answer mixed(Rows rows) {
  const std::vector<Json> timed = timed_rows(rows);
  std::vector<RowPair> pairs = step_pairs(timed);
  std::erase_if(pairs, [](const RowPair& p) { return p.over != "dtype"; });
  if (pairs.empty()) return {};
  Answer a;
  std::vector<double> ratios;
  for (const RowPair& p : pairs) ratios.push_back(p.achieved.ratio);
  a.sentences.push_back(fmt::format("Against fp32, {} makes the step {} as fast.", listed([&] {
                                      std::vector<std::string> words;
                                      for (const RowPair& p : pairs)
                                        if (const std::string w = text_at(p.judged, "dtype");
                                            std::find(words.begin(), words.end(), w) == words.end())
                                          words.push_back(w);
                                      return words;
                                    }()),
                                    range_of_times(ratios)));
  const auto params = [](const RowPair& p) { return number_at(p.baseline, "params").value_or(0); };
  const auto [small, large] = std::minmax_element(
      pairs.begin(), pairs.end(), [&](const RowPair& x, const RowPair& y) { return params(x) < params(y); });
  if (params(*small) < params(*large) && small->achieved.ratio != large->achieved.ratio)
    a.sentences.push_back(fmt::format("The gain {} with the model: {} for {}, {} for {}.",
                                      large->achieved.ratio > small->achieved.ratio ? "grows" : "shrinks",
                                      times(small->achieved.ratio), text_at(small->baseline, "size"),
                                      times(large->achieved.ratio), text_at(large->baseline, "size")));
  a.tables.push_back({"", pair_table(pairs), 5, false, {}});
  for (NamedChart& chart : step_charts(timed))
    if (chart.name == "speedup-dtype")
      a.charts.push_back({std::move(chart), "speed-up of one precision over the other"});
  return a;
}

Answer accumulation(Rows rows) {
  Answer a;
  for (const Json& study : rows) {
    const Json list = list_at(study, "rows");
    if (list.empty()) continue;
    a = {};
    const std::vector<Json> lines(list.begin(), list.end());
    for (const std::vector<Json>& policy : groups_by(lines, {"precision", "grad"})) {
      const Json *few = least(policy, "micro_batches"), *many = greatest(policy, "micro_batches");
      if (few == nullptr || few == many) continue;
      a.sentences.push_back(
          fmt::format("{} with {} gradients: relative error {} over {} micro-batches, {} over {}.",
                      text_at(*few, "precision"), text_at(*few, "grad"),
                      plain(number_at(*few, "error").value_or(0), 2), text_at(*few, "micro_batches"),
                      plain(number_at(*many, "error").value_or(0), 2), text_at(*many, "micro_batches")));
    }
  }
  return a;
}

constexpr Question kQuestions[] = {
    {"1.1.5",
     "mixed_precision_accumulation",
     "Mixed precision accumulation",
     {"precision accumulate"},
     sums,
     "kiln precision accumulate"},
    {"1.1.5 (a)",
     "benchmarking_mixed_precision",
     "Data types of the toy model",
     {"precision toymodel"},
     toy_model,
     "kiln precision toymodel"},
    {"1.1.5 (b)",
     "benchmarking_mixed_precision",
     "Layer normalization and precision",
     {"precision layernorm"},
     layer_norm,
     "kiln precision layernorm"},
    {"1.1.5 (c)",
     "benchmarking_mixed_precision",
     "Mixed precision: timings and trends",
     {"bench step"},
     mixed,
     "kiln bench step --size small,medium,large --dtype fp32,bf16 --preset baseline"},
    {"",
     "benchmarking_mixed_precision",
     "Gradients over micro-batches",
     {"precision accumulation"},
     accumulation,
     "kiln precision accumulation"},
};

}  // namespace

Chapter precision_chapter() { return {"precision", "Mixed precision", kQuestions, "profiling"}; }

}  // namespace kiln
