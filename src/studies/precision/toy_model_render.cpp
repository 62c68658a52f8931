#include <fmt/format.h>

#include "rows/row_outcome.h"
#include "studies/precision/render.h"

namespace kiln {
namespace {

std::string column_of(const ToyModelRun& run) {
  return run.policy.casts_at_use() ? fmt::format("{} autocast", name_of(run.policy.compute))
                                   : std::string(name_of(run.precision));
}

std::string dtype_text(const ToyTensor& t) {
  return t.dtype == t.predicted ? std::string(name_of(t.dtype))
                                : fmt::format("{} (policy: {})", name_of(t.dtype), name_of(t.predicted));
}

const Schema<ToyTensor>& tensor_schema() {
  using R = ToyTensor;
  static const Schema<R> kSchema = {
      {"name", "tensor", Unit::text, field<&R::what>},
      {"shape", "shape", Unit::text, field<&R::shape>},
      {"dtype", "dtype", Unit::text, field<&R::dtype>},
      {"predicted", "predicted", Unit::text, field<&R::predicted>},
  };
  return kSchema;
}

const Schema<ToyModelRun>& run_schema() {
  using R = ToyModelRun;
  static const Schema<R> kSchema = {
      same_outcome_columns<R, RowStatus::ok>(),
      {"precision", "precision", Unit::text, field<&R::precision>},
      {"compute", "compute", Unit::text, [](const R& r) { return Json(name_of(r.policy.compute)); }},
      {"scales_loss", "", Unit::text, [](const R& r) { return Json(r.policy.scales_loss); }},
      {"as_predicted", "", Unit::text, field<&R::as_predicted>},
      {"loss", "loss", Unit::number, field<&R::loss>},
      {"loss_error", "error", Unit::number, field<&R::loss_error>},
      {"grad_error", "gradients", Unit::number, field<&R::grad_error>},
      {"switched", "switched", Unit::count, field<&R::switched>},
      {"floor", "floor", Unit::number, field<&R::floor>},
      {"tensors", "", Unit::text, [](const R& r) { return tensor_schema().rows(r.tensors); }},
  };
  return kSchema;
}

// A line for each tensor, a column for each policy; below, what the policy costs in digits.
PageTable dtype_table(const ToyModelReport& report) {
  PageTable t{"", {{"tensor", "shape"}}, 2, /*in_csv=*/true};
  for (const ToyTensor& tensor : report.runs.front().tensors) t.table.push_back({tensor.what, tensor.shape});
  const std::size_t first = t.table.size();
  for (const char* what : {"loss, its value", "  error against fp32", "gradients, error against fp32",
                           "floor: one rounding in a matmul", "ReLU units switched by rounding"})
    t.table.push_back({what, ""});
  for (const ToyModelRun& run : report.runs) {
    t.table[0].push_back(column_of(run));
    for (std::size_t i = 0; i < run.tensors.size(); ++i) t.table[i + 1].push_back(dtype_text(run.tensors[i]));
    const std::string figures[] = {fmt::format("{:.6f}", run.loss), fmt::format("{:.1e}", run.loss_error),
                                   fmt::format("{:.1e}", run.grad_error), fmt::format("{:.1e}", run.floor),
                                   fmt::format("{}", run.switched)};
    for (std::size_t i = 0; i < std::size(figures); ++i) t.table[first + i].push_back(figures[i]);
  }
  return t;
}

}  // namespace

StudyPage toy_model_page(const ToyModelReport& report) {
  const ToyModelRequest& q = report.request;
  StudyPage page;
  page.place =
      fmt::format("fc1 ({} -> {}, no bias), ReLU, LayerNorm({}), fc2 (-> {}), cross-entropy; {} examples",
                  q.in, q.hidden, q.hidden, q.classes, q.batch);
  bool as_predicted = true;
  for (const ToyModelRun& run : report.runs) as_predicted = as_predicted && run.as_predicted();
  page.tables = {dtype_table(report)};
  page.tables.front().lines.emplace_back(as_predicted
                                             ? "Every tensor has the dtype that its policy predicts."
                                             : "Not every tensor has the dtype that its policy predicts.");
  page.json = {{"command", "precision toymodel"},
               {"study", "toymodel"},
               {"batch", q.batch},
               {"in", q.in},
               {"hidden", q.hidden},
               {"classes", q.classes},
               {"seed", q.seed},
               {"runs", run_schema().rows(report.runs)}};
  return page;
}

}  // namespace kiln
