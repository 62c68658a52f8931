// What can be worked out of parallel training without running it, and the layouts that were run.
#include <fmt/format.h>

#include "base/error.h"
#include "model/size_registry.h"
#include "perf/model/hardware.h"
#include "studies/calc/memory_chapter.h"
#include "studies/calc/parallel_ffn.h"
#include "studies/report/chapters/row_facts.h"

namespace kiln {
namespace {

// The answers of a calculation, and of its lines those of some sections; all where none is named.
Answer worked_out(const Calculation& c, std::initializer_list<std::string_view> sections = {}) {
  Answer a;
  TextTable table = {{"quantity", "formula", "with numbers", "value"}};
  for (const DerivedLine& line : c.derivation.lines()) {
    const bool wanted =
        sections.size() == 0 || std::find(sections.begin(), sections.end(), line.section) != sections.end();
    if (wanted && !line.formula.empty())
      table.push_back({line.quantity, fmt::format("{} = {}", line.name, line.formula), line.numbers,
                       with_unit(line.value, line.unit)});
  }
  for (const std::string& answer : c.answers)
    a.sentences.push_back(answer.ends_with('.') ? answer : answer + ".");
  a.tables.push_back({c.title, std::move(table), 3, false, {}});
  return a;
}

Answer xxl(Rows) { return worked_out(calc_xxl({})); }

FfnRequest ffn() {
  const ModelSize& size = find_model_size("10b");
  const Hardware h = find_hardware("h100");
  FfnRequest q;
  q.tokens = 32768;
  q.d_model = static_cast<double>(size.d_model);
  q.d_ff = static_cast<double>(size.d_ff);
  q.hardware = "h100";
  q.flops = h.flops_of("bf16");
  q.bandwidth = h.link ? h.link->bytes_per_s : 0;
  return q;
}

Answer data_parallel(Rows) { return worked_out(calc_dp(ffn())); }
Answer fsdp(Rows) { return worked_out(calc_fsdp(ffn())); }
Answer tensor_parallel(Rows) {
  Answer a = worked_out(calc_tp(ffn()));
  TextTable equations = {{"backward, on the shards of one device"}};
  for (const std::string& line : tp_backward_equations()) equations.push_back({line});
  a.tables.push_back({"", std::move(equations), 1, false, {}});
  return a;
}
Answer both(Rows) { return worked_out(calc_2d(ffn())); }

Answer layouts(Rows rows) {
  const std::vector<Json> measured = rows_where(rows, [](const Json& r) {
    return status_of(r) == RowStatus::ok && number_at(r, "p50_ms") && number_at(r, "predicted_ms");
  });
  if (measured.empty()) return {};
  Answer a;
  const Json *fastest = least(measured, "p50_ms"), *first = least(measured, "predicted_ms");
  a.sentences.push_back(fmt::format(
      "Of {} that were run, {} was fastest with {}; predicted fastest was {}{}.",
      plural(measured.size(), "layout"), text_at(*fastest, "layout"), ms_text(*number_at(*fastest, "p50_ms")),
      text_at(*first, "layout"), fastest == first ? ", the same" : ""));
  a.tables.push_back(facts_table("", measured,
                                 {{"layout", "layout", Unit::text, Where::table},
                                  {"ranks", "ranks", Unit::text, Where::table},
                                  {"p50_ms", "step ms", Unit::milliseconds, Where::table},
                                  {"predicted_ms", "predicted ms", Unit::milliseconds, Where::table},
                                  {"bound", "bound by", Unit::text, Where::table}}));
  return a;
}

constexpr Question kQuestions[] = {
    {"2.4",
     "communication_accounting",
     "A model far too large for a device: memory, sharding, batch",
     {},
     xxl,
     "kiln calc xxl"},
    {"", "data_parallel_calcs", "Data parallelism on paper", {}, data_parallel, "kiln calc dp"},
    {"", "fsdp_calcs", "FSDP on paper", {}, fsdp, "kiln calc fsdp"},
    {"", "tp_calcs", "Tensor parallelism on paper", {}, tensor_parallel, "kiln calc tp"},
    {"", "fsdp_tp_calcs", "FSDP and tensor parallelism together", {}, both, "kiln calc 2d"},
    {"", "", "Layouts that were run", {"plan"}, layouts, "kiln plan --size micro --devices 2 --check"},
};

}  // namespace

Chapter parallelism_chapter() { return {"parallelism", "Parallelism analysis", kQuestions}; }

}  // namespace kiln
