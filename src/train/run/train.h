// What `kiln train` does, apart from its options and its printing.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "data/training_text.h"
#include "dist/strategy/strategies.h"
#include "model/config.h"
#include "model/model_options.h"
#include "optim/optimizers.h"
#include "perf/model/model_flops.h"
#include "perf/timing/host_load.h"
#include "train/checkpoint/checkpoint_manager.h"
#include "train/memory_prediction.h"
#include "train/run/trace_hook.h"
#include "train/run/train_loop.h"

namespace kiln {

// The options of a run: fields and their defaults. What each is called on the command line, in a run
// config and in run.json, and what it may be, is declared once, by add_train_options. ModelOptions say which
// model.
struct TrainRequest : ModelOptions {  // NOLINT(clang-analyzer-optin.performance.Padding)
  TrainRequest() : ModelOptions{.sizes = {"micro"}} {}

  std::string run;        // the run's folder
  bool fresh = false;     // do not resume what is there
  std::string text;       // file, folder, or token folder; empty: kiln's own sources
  std::string tokenizer;  // where the text is not tokens already; empty: the model's own, else bytes
  std::optional<int32_t> train_bpe;  // instead of it: a BPE of so many tokens trained on the text
  std::string precision = "fp32";
  std::string recompute = "none";
  std::string compile = "none";
  bool fit = false;  // micro-batch, gradient accumulation and recompute as they fit and are fastest
  std::string preset = "optimized";  // or baseline
  std::string variants;              // attention=naive,qkv=split,...: on top of the preset
  LossScaling loss_scale;            // of --precision fp16
  Device device = Device::cpu();
  std::string graph = "auto";     // on, off; auto: where the device can capture the step
  std::string prefetch = "auto";  // on, off; auto: a thread reads ahead, and where the device has streams
                                  // batches are copied during the step before
  std::string tune = "auto";      // a file of kiln tune, off; auto: the one next to the run's folder, if any
  int64_t steps = 500;
  int64_t batch = 8, context = 128;
  int micro_steps = 1;
  double lr = 1e-3;
  std::string schedule = "cosine";  // by the names of schedule_names()
  std::optional<double> min_lr;     // a tenth of lr
  std::optional<int64_t> warmup;    // a tenth of the steps, at most 100
  OptimizerOptions optimizer;
  double clip = 1;
  int64_t eval_every = 0, eval_batches = 10;
  std::optional<int64_t> save_every;  // a tenth of the steps, from 50 to 1000
  int keep = 3;
  bool stop_on_save_error = false;
  bool async_save = false;  // written by a thread, from a copy, while training continues
  OnNonFinite on_non_finite = OnNonFinite::stop;  // a step whose loss or gradients are not finite
  int64_t max_skips = 10;                         // such steps in a row; one more ends the run
  int64_t check_replicas = 0;       // steps between comparisons of what ranks hold alike; 0: never
  std::vector<std::string> inject;  // faults, as parse_injection takes them
  std::string oom_snapshot;         // a file; empty: in the run's folder; off
  int64_t sample_every = 0;         // steps; 0: only after the last
  int64_t sample_tokens = 80;       // 0: never
  std::string prompt;               // empty: the beginning of a line
  double held_out = 0.1;
  bool overfit = false;
  StepRange trace;  // of rank 0, into a timeline
  int threads = 0;  // of each rank; 0: all, split among ranks
  uint64_t seed = 0;
  std::string strategy = "none";  // by the names of strategy_names()
  int ranks = 1;                  // each takes its part of the batch
  int tensor_ranks = 1;           // of them, those that hold one model between them and take the same part
  std::string transport = "auto";
  bool oversubscribe = false;  // more than kMostRanksPerCore ranks to a core are meant
  double bucket_mb = StrategyOptions().bucket_mb;
  bool bucket_auto = false;                        // instead: as the link is (auto_bucket.h)
  int fsdp_prefetch = StrategyOptions().prefetch;  // weights in flight while one is in use
  bool prefetch_auto = false;                      // instead: as auto_prefetch.h chooses
  std::string link;     // of LinkModel::parse: collectives are paced as on it; empty: they are not
  std::string results;  // the folder whose results.jsonl may know the link
  std::string wire = "fp32";
  bool canonical = false;     // the same bits on any number of ranks
  std::optional<int> chunks;  // of a step's batch, which are then summed in a fixed order
};

// What --fit or a recompute budget came to.
struct RunChoice {
  int64_t batch = 0;
  int micro_steps = 1;
  std::string recompute = "none";
  std::string why;  // for a person: a line
};

// What is known once everything is set up and before the first step.
struct TrainSetup {
  ModelConfig model;
  std::optional<RunChoice> choice;
  int64_t first_step = 0;  // steps that an earlier part of the run did
  std::string resumed;     // the checkpoint it resumed from; empty: from the beginning
  int64_t parameters = 0;  // elements
  ParamGroups groups;      // of them
  MemoryStats memory;      // predicted
  std::string text;        // what is trained on
  int64_t train_tokens = 0, validation_tokens = 0;
  int64_t tokens_per_step = 0;
  int threads = 1;
  std::optional<double> predicted_step;  // seconds, where this machine is calibrated
  double step_flops = 0;                 // model FLOPs of one step, all its micro-steps
  double peak_flops = 0;                 // a second, measured: what this machine's multiply-adds reach
  std::string isa;
  std::string transport;  // what carries the ranks' collectives
  std::string products;   // where the choices of its GEMM algorithms are kept; empty: the library's own
  double began = 0;       // of the whole run: seconds since 1970, by this machine's clock
  std::vector<double> earlier_losses;  // of the steps that an earlier part did, where its metrics are there
};

struct TrainOutcome {
  int64_t steps = 0;       // of the whole run
  int64_t steps_now = 0;   // of them, those of this process
  std::string checkpoint;  // the last good one
  int64_t parameters = 0;
  int64_t skipped = 0;  // updates left out, by a loss scale or --on-non-finite skip, of the whole run
  RunTotals totals;     // of the whole run
  int64_t tokens_per_step = 0;
  std::optional<double> predicted_step = {};  // seconds, before the first one
  std::optional<double> step_seconds() const {
    if (totals.tokens == 0 || tokens_per_step == 0) return std::nullopt;
    return totals.seconds * static_cast<double>(tokens_per_step) / static_cast<double>(totals.tokens);
  }
  std::string sample;     // what the model writes now; empty where there is no tokenizer
  std::string transport;  // what carried the ranks' collectives
  std::string metrics;    // metrics.jsonl of the whole run
  bool metrics_complete = true;
  HostLoad load;                  // while it trained
  double start_seconds = 0;       // from the start of this process to the end of its first step
  double effective_training = 0;  // the share of the time since the run began that went into steps that count
};

class TrainView : public RunListener {
 public:
  virtual void on_trace(const RunTrace&) {}  // the steps of TrainRequest::trace, once they are done
  virtual void on_setup(const TrainRequest&, const TrainSetup&) {}
  virtual void on_saved(int64_t /*step*/, const std::string& /*checkpoint*/) {}
  virtual void on_sample_text(int64_t /*step*/, const std::string& /*text*/) {}
  virtual void on_warning(const std::string& /*line*/) {}
  virtual void on_note(const std::string& /*line*/) {}
  virtual void on_memory(const MemoryStats& /*measured*/) {}  // after the last step
};

// Throws Error(usage) for a request that cannot be, before anything is read: each option by its declaration,
// then a summary of all.
void check_request(const TrainRequest& request);

// Resumes what the run's folder holds, or starts. Throws when the last save failed, after all else is
// done.
TrainOutcome train(const TrainRequest& request, TrainView& view, const std::atomic<bool>& stop);

}  // namespace kiln
