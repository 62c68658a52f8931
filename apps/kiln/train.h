// What `kiln train` does, apart from how it is asked for and how it is printed.
#pragma once

#include <atomic>
#include <string>

#include "data/training_text.h"
#include "model/config.h"
#include "perf/model_flops.h"
#include "train/training_run.h"

namespace kiln::cli {

struct TrainRequest {
  std::string text;                // file, folder, or token folder
  std::string tokenizer = "byte";  // where the text is not tokens already
  std::string size = "nano";
  std::string precision = "fp32";    // by the names of parse_precision
  std::string recompute = "none";    // by the names of parse_recompute
  std::string preset = "optimized";  // or baseline
  std::string variants;              // attention=naive,qkv=split,...: on top of the preset
  LossScaling loss_scale;            // of --precision fp16
  int64_t steps = 200;
  int64_t batch = 4, context = 128;
  int micro_steps = 1;
  double lr = 1e-3, min_lr = -1;  // below 0: a tenth of lr
  int64_t warmup = -1;            // below 0: a tenth of the steps, at most 100
  double decay = 0.1, clip = 1;
  int64_t eval_every = 0, eval_batches = 10;
  double held_out = 0.1;
  bool overfit = false;
  int threads = 0;
  uint64_t seed = 0;
};

// What is known once everything is set up and before the first step.
struct TrainSetup {
  ModelConfig model;
  int64_t parameters = 0;  // elements
  int64_t train_tokens = 0, validation_tokens = 0;
  int64_t tokens_per_step = 0;
  int threads = 1;
  double step_flops = 0;  // model operations of one step, all micro-steps together
  double peak_flops = 0;  // a second, measured: what this machine's multiply-adds reach
  std::string isa;
};

class TrainView : public RunListener {
 public:
  virtual void on_setup(const TrainRequest&, const TrainSetup&) {}
};

// Throws Error(usage) for a request that cannot be, before anything is read.
void check_request(const TrainRequest& request);

// Returns the number of steps done.
int64_t train(const TrainRequest& request, TrainView& view, const std::atomic<bool>& stop);

}  // namespace kiln::cli
