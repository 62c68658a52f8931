// Where a step goes, from its trace: the questions that a profiler's window would answer.
#include <fmt/format.h>

#include "studies/profile/render.h"
#include "studies/report/chapters/row_facts.h"

namespace kiln {
namespace {

const std::initializer_list<std::string_view> kStep = {"size", "dtype", "ctx", "batch", "preset"};

std::vector<Json> traced(Rows rows) {
  return rows_where(rows, [](const Json& r) { return number_at(r, "traced_ms").has_value(); });
}

// Of the member an answer needs; null where the row is of a profile without it.
const Json* part_of(const Json& row, std::initializer_list<const char*> path) {
  const Json* at = &row;
  for (const char* key : path) {
    at = at->find(key);
    if (at == nullptr) return nullptr;
  }
  return at->is_structured() ? at : nullptr;
}

// A sentence for each profile that has the part, of at most so many.
template <class Say>
Answer each(Rows rows, Say say) {
  constexpr std::size_t kMost = 6;  // of a grid of sizes and contexts; the table has all
  Answer a;
  const std::vector<Json> all = traced(rows);
  for (const Json& row : all) {
    const std::string name = name_among(all, row, kStep);
    std::string sentence = say(row, name);
    if (!sentence.empty() && a.sentences.size() < kMost) a.sentences.push_back(std::move(sentence));
  }
  return a;
}

Answer forward_time(Rows rows) {
  Answer a = each(rows, [](const Json& row, const std::string& name) -> std::string {
    const Json* forward = part_of(row, {"matmul_share", "forward_alone"});
    const std::string why = text_at(row, "explanation");
    if (forward == nullptr) return {};
    return fmt::format("{}: the kernels of forward take {}. {}", name,
                       ms_text(number_at(*forward, "total_ms").value_or(0)), why);
  });
  if (!a.empty())
    a.tables.push_back(facts_table("", traced(rows),
                                   {{"size", "size", Unit::text, Where::table},
                                    {"dtype", "precision", Unit::text, Where::differs},
                                    {"ctx", "ctx", Unit::text, Where::table},
                                    {"preset", "preset", Unit::text, Where::differs},
                                    {"p50_ms", "timer ms", Unit::milliseconds, Where::table},
                                    {"traced_ms", "traced ms", Unit::milliseconds, Where::table},
                                    {"traced_over_timer", "difference", Unit::share, Where::table},
                                    {"peak_bytes", "peak MiB", Unit::bytes, Where::table}}));
  return a;
}

Answer top_kernel(Rows rows) {
  return each(rows, [](const Json& row, const std::string& name) -> std::string {
    const Json *forward = part_of(row, {"top_kernel", "forward"}),
               *both = part_of(row, {"top_kernel", "forward_backward"});
    if (forward == nullptr || both == nullptr) return {};
    const bool same = text_at(*part_of(row, {"top_kernel"}), "same") == "yes";
    return fmt::format("{}: `{}` takes most of forward, {} in {} calls ({}); with backward it is {}.", name,
                       text_at(*forward, "name"), ms_text(number_at(*forward, "ms").value_or(0)),
                       text_at(*forward, "calls"), percent_text(number_at(*forward, "share").value_or(0)),
                       same ? std::string("the same one")
                            : fmt::format("`{}`, {}", text_at(*both, "name"),
                                          percent_text(number_at(*both, "share").value_or(0))));
  });
}

Answer other_kernels(Rows rows) {
  Answer a = each(rows, [](const Json& row, const std::string& name) -> std::string {
    const Json* kernels = part_of(row, {"not_matmul", "kernels"});
    if (kernels == nullptr) return {};
    if (kernels->empty())
      return fmt::format("{}: nothing besides matmuls takes more than {} of forward.", name,
                         percent_text(number_at(*part_of(row, {"not_matmul"}), "above").value_or(0)));
    std::vector<std::string> words;
    for (const Json& k : *kernels) {
      if (words.size() == 5) break;
      words.push_back(
          fmt::format("{} {}", text_at(k, "name"), percent_text(number_at(k, "share").value_or(0))));
    }
    return fmt::format("{}: besides matmuls, {} of forward.", name, listed(words));
  });
  const std::vector<Json> all = traced(rows);
  if (a.empty() || all.empty()) return a;
  if (const Json* kernels = part_of(all.back(), {"not_matmul", "kernels"});
      kernels != nullptr && !kernels->empty())
    a.tables.push_back(page_table(
        fmt::format("kernels besides matmuls, {}", name_among({&all.back(), 1}, all.back(), kStep)),
        trace_kernel_columns(), *kernels));
  return a;
}

Answer adamw_step(Rows rows) {
  return each(rows, [](const Json& row, const std::string& name) -> std::string {
    const Json *forward = part_of(row, {"matmul_share", "forward_alone"}),
               *step = part_of(row, {"matmul_share", "step"});
    if (forward == nullptr || step == nullptr) return {};
    const double a = number_at(*forward, "share").value_or(0), b = number_at(*step, "share").value_or(0);
    return fmt::format(
        "{}: matmuls take {} of the kernels' time in inference and {} in a training step with AdamW{}.", name,
        percent_text(a), percent_text(b),
        b < a   ? "; the update and backward's other ops add what is not matmul"
        : b > a ? "; backward adds two matmuls for each of forward's"
                : "");
  });
}

Answer softmax_against_matmul(Rows rows) {
  Answer a = each(rows, [](const Json& row, const std::string& name) -> std::string {
    const Json* attention = part_of(row, {"attention"});
    if (attention == nullptr) return {};
    const auto time = number_at(*attention, "softmax_over_products_time"),
               flops = number_at(*attention, "softmax_over_products_flops");
    if (!time || !flops) return {};
    return fmt::format(
        "{}: softmax takes {} of the time of the two matmuls of attention, with {} of their FLOPs{}.", name,
        times(*time), percent_text(*flops),
        *time > 2 * *flops ? ": it is bound by memory and not by arithmetic" : "");
  });
  const std::vector<Json> all = traced(rows);
  if (a.empty()) return a;
  Json parts = Json::array();
  if (const Json* attention = part_of(all.back(), {"attention"}))
    for (const auto& [name, part] : attention->items())
      if (part.contains("of_time")) parts.append(part);
  if (!parts.empty())
    a.tables.push_back(page_table("attention, part by part", attention_part_columns(), parts));
  return a;
}

Answer launches(Rows rows) {
  return each(rows, [](const Json& row, const std::string& name) -> std::string {
    const Json *launched = part_of(row, {"launches"}), *dispatch = part_of(row, {"dispatch"});
    if (launched == nullptr || dispatch == nullptr) return {};
    return fmt::format(
        "{}: {} launches in forward and {} in the step, {} us between two; idle for {} of the step, dispatch "
        "{}: {}.",
        name, text_at(*launched, "forward"), text_at(*launched, "step"), figure_at(*launched, "mean_gap_us"),
        percent_text(number_at(*dispatch, "idle_share").value_or(0)),
        percent_text(number_at(*dispatch, "host_share").value_or(0)), text_at(*dispatch, "verdict"));
  });
}

constexpr std::string_view kFill =
    "kiln profile --size small --ctx 512 --preset baseline --phase forward,backward,optimizer";
constexpr Question kQuestions[] = {
    {"1.1.4 (a)", "nsys_profile", "Total time of the forward pass", {"profile"}, forward_time, kFill},
    {"1.1.4 (b)", "nsys_profile", "The kernel with the most time", {"profile"}, top_kernel, kFill},
    {"1.1.4 (c)", "nsys_profile", "Kernels besides matrix multiplies", {"profile"}, other_kernels, kFill},
    {"1.1.4 (d)", "nsys_profile", "A complete step with AdamW", {"profile"}, adamw_step, kFill},
    {"1.1.4 (e)",
     "nsys_profile",
     "Softmax against matrix multiplications",
     {"profile"},
     softmax_against_matmul,
     kFill},
    {"", "nsys_profile", "Launches and dispatch", {"profile"}, launches, kFill},
};

}  // namespace

Chapter profiling_chapter() { return {"profiling", "Profiling", kQuestions, "profiling"}; }

}  // namespace kiln
