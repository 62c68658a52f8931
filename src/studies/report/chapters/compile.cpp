// The same step and the same attention as they stand and compiled.
#include <fmt/format.h>

#include "studies/report/chapters/row_facts.h"

namespace kiln {
namespace {

bool is_on(const Json& row) {
  const std::string word = text_at(row, "compile");
  return !word.empty() && word != "off" && word != "no" && word != "none";
}

// Pairs of rows that are alike but for being compiled.
Answer compared(Rows rows, std::initializer_list<std::string_view> alike, std::string_view what) {
  Answer a;
  std::vector<double> ratios;
  std::vector<Json> shown;
  for (const std::vector<Json>& pair : groups_by(timed_rows(rows), alike)) {
    const Json *plain = nullptr, *compiled = nullptr;
    for (const Json& row : pair) (is_on(row) ? compiled : plain) = &row;
    if (plain == nullptr || compiled == nullptr) continue;
    ratios.push_back(ratio_at(*plain, *compiled, "p50_ms"));
    shown.push_back(*plain);
    shown.push_back(*compiled);
  }
  if (ratios.empty()) return a;
  a.sentences.push_back(fmt::format("Compiled, {} is {} as fast.", what, range_of_times(ratios)));
  a.tables.push_back(facts_table("", shown,
                                 {{"size", "size", Unit::text, Where::table},
                                  {"mode", "mode", Unit::text, Where::table},
                                  {"dtype", "precision", Unit::text, Where::table},
                                  {"seq", "length", Unit::text, Where::table},
                                  {"d", "d", Unit::text, Where::table},
                                  {"preset", "preset", Unit::text, Where::table},
                                  {"compile", "compile", Unit::text, Where::table},
                                  {"p50_ms", "ms, median", Unit::milliseconds, Where::table},
                                  {"peak_bytes", "peak MiB", Unit::bytes, Where::table}}));
  return a;
}

Answer attention(Rows rows) {
  return compared(rows, {"command", "dtype", "causal", "batch", "heads", "seq", "d", "pass"},
                  "a pass of attention");
}
Answer step(Rows rows) {
  return compared(rows, {"size", "mode", "dtype", "batch", "ctx", "preset", "recompute"}, "the step");
}

constexpr Question kQuestions[] = {
    {"1.3 (a)",
     "torch_compile",
     "Compiled against plain attention",
     {"bench attention"},
     attention,
     "kiln bench attention --seq 1024,4096 --d 64"},
    {"1.3 (b)",
     "torch_compile",
     "The whole model, compiled",
     {"bench step"},
     step,
     "kiln bench step --size small --preset baseline"},
};

}  // namespace

Chapter compile_chapter() { return {"compile", "Compilation", kQuestions, "attention"}; }

}  // namespace kiln
