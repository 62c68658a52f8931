// What `kiln eval` does, apart from its options: how well a model predicts a text.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/json.h"
#include "train/run/evaluate.h"
#include "train/run/load_model.h"

namespace kiln {

struct EvalRequest {
  ModelRequest model;
  std::string text;                // text file, folder of them, or folder of tokens
  std::optional<int64_t> context;  // the model's, at most 1024
  int64_t batch = 4, batches = kAllBatches;
  uint64_t seed = 0;
};

struct EvalReport {
  std::string folder, device;
  int threads = 1;
  int64_t parameters = 0, context = 0;
  Evaluation result;
  double seconds = 0;

  double tokens_per_second() const { return static_cast<double>(result.tokens) / seconds; }
};

// Throws Error(usage) for a request that cannot be, before anything is read.
void check_request(const EvalRequest& request);

// What is being done, how much of it is done (0 to 1), and a figure to go with it.
using EvalProgress = std::function<void(const char*, double, const std::string&)>;

EvalReport evaluate_text(const EvalRequest& request, const EvalProgress& progress);

Json eval_json(const EvalRequest& request, const EvalReport& report);
std::string eval_text(const EvalReport& report);

}  // namespace kiln
