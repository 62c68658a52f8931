#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "studies/format.h"
#include "kiln/precision_pages.h"

namespace kiln::cli {

using nlohmann::ordered_json;

namespace {

constexpr const char* kLegend =
    "\nerror, predicted, bound and floor are by norm, relative to fp64. predicted: what the roundings\n"
    "lean and scatter by, from the summands and the format; bound: half a spacing each, all one way;\n"
    "floor: the right result rounded once. A loop rounds in software, and its ns are of this code;\n"
    "the op's are the device's.\n";

}  // namespace

std::string accumulation_text(const AccumulationReport& report) {
  const AccumulationRequest& q = report.request;
  TextTable table = {{"precision", "products", "gradients", "B/param"}};
  for (int k : q.micro_batches) table[0].push_back(fmt::format("k = {}", k));
  table[0].insert(table[0].end(), {"predicted", "floor"});
  for (const AccumulationRow& row : report.rows) {
    std::vector<std::string> line = {
        std::string(name_of(row.precision)), std::string(name_of(row.policy.compute)),
        std::string(name_of(row.policy.grad)), fmt::format("{}", size_of(row.policy.grad))};
    for (const AccumulationCell& c : row.cells) line.push_back(fmt::format("{:.1e}", c.error));
    line.push_back(fmt::format("{:.1e}", row.cells.back().predicted));
    line.push_back(fmt::format("{:.1e}", row.cells.back().floor));
    table.push_back(line);
  }
  std::string text =
      fmt::format(
          "The gradient of a linear layer ({} -> {}) added up over k micro-batches of {} rows, on {}:\n"
          "relative error against fp64, and what a gradient costs in bytes\n\n",
          q.in, q.out, q.batch, q.device.str()) +
      aligned(table, 3) +
      fmt::format(
          "\nfloor: rounding activations and their gradients to the dtype of products, at k = {}; "
          "predicted:\n"
          "that, and one rounding of the running gradient for each micro-batch.\n",
          q.micro_batches.back());
  for (const SumTable& sums : report.sums) text += fmt::format("\n{}", sums_text(sums));
  return report.sums.empty() ? text : text + kLegend;
}

std::string accumulation_json(const AccumulationReport& report) {
  ordered_json rows = ordered_json::array();
  for (const AccumulationRow& row : report.rows) {
    for (const AccumulationCell& c : row.cells)
      rows.push_back({{"precision", name_of(row.precision)},
                      {"compute", name_of(row.policy.compute)},
                      {"grad", name_of(row.policy.grad)},
                      {"grad_bytes", size_of(row.policy.grad)},
                      {"micro_batches", c.micro_batches},
                      {"error", c.error},
                      {"predicted", c.predicted},
                      {"floor", c.floor}});
  }
  ordered_json sums = ordered_json::array();
  for (const SumTable& table : report.sums) sums.push_back(sums_json(table));
  const AccumulationRequest& q = report.request;
  return dump({{"study", "accumulation"},
               {"device", q.device.str()},
               {"batch", q.batch},
               {"in", q.in},
               {"out", q.out},
               {"seed", q.seed},
               {"rows", rows},
               {"sums", sums}},
              2) +
         "\n";
}

}  // namespace kiln::cli
