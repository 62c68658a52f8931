#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "studies/format.h"
#include "kiln/precision_pages.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

std::string heading(const ToyModelRun& run) {
  return run.policy.casts_at_use() ? fmt::format("{} autocast", name_of(run.policy.compute))
                                   : std::string(name_of(run.precision));
}

std::string dtype_text(const ToyTensor& t) {
  return t.dtype == t.predicted ? std::string(name_of(t.dtype))
                                : fmt::format("{} (policy: {})", name_of(t.dtype), name_of(t.predicted));
}

}  // namespace

std::string toy_model_text(const ToyModelReport& report) {
  const ToyModelRequest& q = report.request;
  TextTable table = {{"tensor", "shape"}};
  const std::vector<ToyTensor>& first = report.runs.front().tensors;
  for (const ToyTensor& t : first) table.push_back({t.what, t.shape});
  std::vector<std::string> loss = {"loss, its value", ""}, loss_error = {"  error against fp32", ""},
                           grad_error = {"gradients, error against fp32", ""},
                           floor = {"floor: one rounding in a product", ""},
                           switched = {"ReLU units switched by rounding", ""};
  bool as_predicted = true;
  for (const ToyModelRun& run : report.runs) {
    table[0].push_back(heading(run));
    for (std::size_t i = 0; i < first.size(); ++i) table[i + 1].push_back(dtype_text(run.tensors[i]));
    loss.push_back(fmt::format("{:.6f}", run.loss));
    loss_error.push_back(fmt::format("{:.1e}", run.loss_error));
    grad_error.push_back(fmt::format("{:.1e}", run.grad_error));
    switched.push_back(fmt::format("{}", run.switched));
    floor.push_back(fmt::format("{:.1e}", run.floor));
    as_predicted = as_predicted && run.as_predicted();
  }
  for (const auto& line : {loss, loss_error, grad_error, switched, floor}) table.push_back(line);
  std::string text =
      fmt::format("fc1 ({} -> {}, no bias), ReLU, LayerNorm({}), fc2 (-> {}), cross-entropy; {} examples\n\n",
                  q.in, q.hidden, q.hidden, q.classes, q.batch);
  text += aligned(table, 2);
  text += as_predicted ? "\nEvery tensor has the dtype that its policy predicts.\n"
                       : "\nNot every tensor has the dtype that its policy predicts.\n";
  return text;
}

std::string toy_model_json(const ToyModelReport& report) {
  ordered_json runs = ordered_json::array();
  for (const ToyModelRun& run : report.runs) {
    ordered_json tensors = ordered_json::array();
    for (const ToyTensor& t : run.tensors)
      tensors.push_back({{"name", t.what},
                         {"shape", t.shape},
                         {"dtype", name_of(t.dtype)},
                         {"predicted", name_of(t.predicted)}});
    runs.push_back({{"precision", name_of(run.precision)},
                    {"compute", name_of(run.policy.compute)},
                    {"scales_loss", run.policy.scales_loss},
                    {"as_predicted", run.as_predicted()},
                    {"loss", run.loss},
                    {"loss_error", run.loss_error},
                    {"grad_error", run.grad_error},
                    {"switched", run.switched},
                    {"floor", run.floor},
                    {"tensors", tensors}});
  }
  const ToyModelRequest& q = report.request;
  return dump({{"study", "toymodel"},
               {"batch", q.batch},
               {"in", q.in},
               {"hidden", q.hidden},
               {"classes", q.classes},
               {"seed", q.seed},
               {"runs", runs}},
              2) +
         "\n";
}

}  // namespace kiln::cli
