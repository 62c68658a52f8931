// The forms in which `kiln tune` shows what it measured.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "studies/tune/tune.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

double gain(double before, double after) { return after > 0 ? before / after : 1; }

std::string title(const TunedStep& s) {
  return fmt::format("{}, {}, ctx {}", s.size.name, name_of(s.precision), s.context);
}

// What costs a step most comes first.
std::vector<MatmulChoice> by_weight(std::vector<MatmulChoice> products) {
  std::stable_sort(products.begin(), products.end(), [](const MatmulChoice& a, const MatmulChoice& b) {
    return static_cast<double>(a.calls) * a.us > static_cast<double>(b.calls) * b.us;
  });
  return products;
}

}  // namespace

std::string tune_page(const TuneReport& r) {
  std::size_t width = 7;
  for (const TunedStep& s : r.steps) {
    for (const MatmulChoice& p : s.products) width = std::max(width, readable_problem(p.problem).size());
  }
  std::string text;
  for (const TunedStep& s : r.steps) {
    text += fmt::format("{}\n  {:<{}}  {:>5}  {:>10}  {:>8}  {:>5}\n", title(s), "product", width, "calls",
                        "default us", "tuned us", "gain");
    for (const MatmulChoice& p : by_weight(s.products))
      text += fmt::format("  {:<{}}  {:>5}  {:>10.2f}  {:>8.2f}  {:>5.2f}\n", readable_problem(p.problem),
                          width, p.calls, p.default_us, p.us, gain(p.default_us, p.us));
    text += fmt::format("  {:<{}}  {:>5}  {:>10.1f}  {:>8.1f}  {:>5.2f}\n\n", "a step", width, "",
                        s.default_us(), s.tuned_us(), gain(s.default_us(), s.tuned_us()));
  }
  return text + fmt::format("{} choices for {} in {}\n", r.choices, r.place.gpu, r.file);
}

std::string tune_json(const TuneReport& r) {
  ordered_json steps = ordered_json::array();
  for (const TunedStep& s : r.steps) {
    ordered_json products = ordered_json::array();
    for (const MatmulChoice& p : s.products)
      products.push_back({{"problem", p.problem},
                          {"calls", p.calls},
                          {"default_us", p.default_us},
                          {"us", p.us},
                          {"gain", gain(p.default_us, p.us)}});
    steps.push_back({{"size", s.size.name},
                     {"dtype", name_of(s.precision)},
                     {"context", s.context},
                     {"default_us", s.default_us()},
                     {"us", s.tuned_us()},
                     {"products", std::move(products)}});
  }
  const ordered_json page = {{"gpu", r.place.gpu},
                             {"cublaslt", r.place.cublaslt},
                             {"file", r.file},
                             {"choices", r.choices},
                             {"steps", std::move(steps)}};
  return page.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace kiln::cli
