#include <fmt/format.h>

#include "rows/row_outcome.h"
#include "studies/precision/render.h"

namespace kiln {
namespace {

struct CellLine {
  const GradAccumulationRow& row;
  const AccumulationCell& cell;
};

const Schema<CellLine>& schema() {
  using L = CellLine;
  static const Schema<L> kSchema = {
      same_outcome_columns<L, RowStatus::ok>(),
      {"precision", "precision", Unit::text, [](const L& l) { return Json(name_of(l.row.precision)); }},
      {"compute", "matmuls", Unit::text, [](const L& l) { return Json(name_of(l.row.policy.compute)); }},
      {"grad", "gradients", Unit::text, [](const L& l) { return Json(name_of(l.row.policy.grad)); }},
      {"grad_bytes", "B/param", Unit::count, [](const L& l) { return Json(size_of(l.row.policy.grad)); }},
      {"micro_batches", "k", Unit::count, [](const L& l) { return Json(l.cell.micro_batches); }},
      {"error", "error", Unit::number, [](const L& l) { return Json(l.cell.error); }},
      {"predicted", "predicted", Unit::number, [](const L& l) { return Json(l.cell.predicted); }},
      {"floor", "floor", Unit::number, [](const L& l) { return Json(l.cell.floor); }},
  };
  return kSchema;
}

// A line for each precision, a column for each number of micro-batches.
PageTable error_table(const GradAccumulationReport& report) {
  const GradAccumulationRequest& q = report.request;
  PageTable t{"", {{"precision", "matmuls", "gradients", "B/param"}}, 3};
  for (int k : q.micro_batches) t.table[0].push_back(fmt::format("k = {}", k));
  t.table[0].insert(t.table[0].end(), {"predicted", "floor"});
  for (const GradAccumulationRow& row : report.rows) {
    std::vector<std::string> line = {
        std::string(name_of(row.precision)), std::string(name_of(row.policy.compute)),
        std::string(name_of(row.policy.grad)), fmt::format("{}", size_of(row.policy.grad))};
    for (const AccumulationCell& c : row.cells) line.push_back(fmt::format("{:.1e}", c.error));
    line.push_back(fmt::format("{:.1e}", row.cells.back().predicted));
    line.push_back(fmt::format("{:.1e}", row.cells.back().floor));
    t.table.push_back(std::move(line));
  }
  t.lines.push_back(fmt::format(
      "floor: rounding activations and their gradients to the dtype of matmuls, at k = {}; predicted: that, "
      "and one rounding of the running gradient for each micro-batch.",
      q.micro_batches.back()));
  return t;
}

constexpr const char* kLegend =
    "error, predicted, bound and floor are by norm, relative to fp64. predicted: bias and "
    "spread of the roundings, from the summands and the format; bound: half a spacing each, all one way; "
    "floor: the exact result rounded once. Loops round in software, and their ns are of this code; an op's "
    "are the device's.";

}  // namespace

StudyPage grad_accumulation_page(const GradAccumulationReport& report) {
  const GradAccumulationRequest& q = report.request;
  StudyPage page;
  page.place = wrapped(fmt::format(
      "The gradient of a linear layer ({} -> {}) summed over k micro-batches of {} rows, on {}: relative "
      "error against fp64, and what a gradient costs in bytes",
      q.in, q.out, q.batch, q.device.str()));
  page.columns = schema().forms();
  for (const GradAccumulationRow& row : report.rows)
    for (const AccumulationCell& cell : row.cells) page.others.push_back(schema().row({row, cell}));
  page.tables = {error_table(report)};
  Json sums = Json::array();
  for (const SumTable& table : report.sums) {
    sums.append(sums_json(table));
    page.tables.push_back(sums_table(table));
  }
  if (!report.sums.empty()) page.tables.push_back({"", {}, 1, false, {kLegend}});
  page.json = {{"command", "precision accumulation"},
               {"study", "accumulation"},
               {"device", q.device.str()},
               {"batch", q.batch},
               {"in", q.in},
               {"out", q.out},
               {"seed", q.seed},
               {"rows", page.others},
               {"sums", sums}};
  return page;
}

}  // namespace kiln
