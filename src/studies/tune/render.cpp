#include "studies/tune/render.h"

#include <fmt/format.h>

#include <algorithm>

#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/format.h"

namespace kiln {
namespace {

double gain(double before, double after) { return after > 0 ? before / after : 1; }

const Schema<MatmulChoice>& schema() {
  using Choice = MatmulChoice;
  static const Schema<Choice> kSchema = {
      same_outcome_columns<Choice, RowStatus::ok>(),
      {"problem", "GEMM", Unit::text, [](const Choice& c) { return Json(c.problem); }, Where::table, "",
       [](const Json& row) { return readable_problem(text_at(row, "problem")); }},
      {"calls", "calls", Unit::count, [](const Choice& c) { return Json(c.calls); }, Where::table},
      {"default_us", "default us", Unit::number, [](const Choice& c) { return Json(c.default_us); },
       Where::table},
      {"us", "tuned us", Unit::number, [](const Choice& c) { return Json(c.us); }, Where::table},
      {"gain", "gain", Unit::times, [](const Choice& c) { return Json(gain(c.default_us, c.us)); },
       Where::table},
  };
  return kSchema;
}

Json products_json(const TunedStep& s) {
  Json products = Json::array();
  for (const MatmulChoice& c : s.products) products.push_back(schema().row(c));
  return products;
}

// What costs a step most comes first, the whole step last.
PageTable step_table(const TunedStep& s) {
  std::vector<MatmulChoice> products = s.products;
  std::stable_sort(products.begin(), products.end(), [](const MatmulChoice& a, const MatmulChoice& b) {
    return static_cast<double>(a.calls) * a.us > static_cast<double>(b.calls) * b.us;
  });
  std::vector<Json> rows;
  for (const MatmulChoice& c : products) rows.push_back(schema().row(c));
  rows.push_back({{"problem", "a step"},
                  {"default_us", s.default_us()},
                  {"us", s.tuned_us()},
                  {"gain", gain(s.default_us(), s.tuned_us())}});
  RowTable table = row_table(schema().forms(), rows);
  return {fmt::format("{}, {}, ctx {}", s.size.name, name_of(s.precision), s.context), std::move(table.lines),
          table.left};
}

}  // namespace

StudyPage tune_page(const TuneReport& r) {
  StudyPage page;
  Json steps = Json::array();
  for (const TunedStep& s : r.steps) {
    page.tables.push_back(step_table(s));
    steps.push_back({{"size", s.size.name},
                     {"dtype", name_of(s.precision)},
                     {"context", s.context},
                     {"default_us", s.default_us()},
                     {"us", s.tuned_us()},
                     {"products", products_json(s)}});
  }
  page.notes = {fmt::format("{} choices for {} in {}", r.choices, r.place.gpu, r.file)};
  add_load_note(r, page.notes);
  page.json = {{"command", "tune"},        {"gpu", r.place.gpu},   {"cublaslt", r.place.cublaslt},
               {"file", r.file},           {"choices", r.choices}, {"steps", std::move(steps)},
               {"load", load_json(r.load)}};
  return page;
}

}  // namespace kiln
