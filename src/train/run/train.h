// What `kiln train` does, apart from how it is asked for and how it is printed.
#pragma once

#include <atomic>
#include <string>

#include "data/training_text.h"
#include "model/config.h"
#include "perf/model/model_flops.h"
#include "train/memory_prediction.h"
#include "train/checkpoint/checkpoint_manager.h"
#include "train/run/train_loop.h"

namespace kiln::cli {

// In the order a person thinks of them, at the price of some padding.
struct TrainRequest {     // NOLINT(clang-analyzer-optin.performance.Padding)
  std::string run;        // the run's folder
  bool fresh = false;     // do not go on with what is there
  std::string text;       // file, folder, or token folder; empty: kiln's own sources
  std::string tokenizer;  // where the text is not tokens already; empty: the model's own, else bytes
  int32_t vocab = 0;      // above 0: instead of it, a BPE of so many tokens trained on the text
  std::string size = "micro";
  std::string model;               // instead of a size: a config.json, or a Hugging Face folder to begin from
  int64_t kv_heads = 0;            // 0: as the model has it
  bool tied = false;               // the head is the embedding
  std::string precision = "fp32";  // by the names of parse_precision
  std::string recompute = "none";  // by the names of parse_recompute
  std::string preset = "optimized";  // or baseline
  std::string variants;              // attention=naive,qkv=split,...: on top of the preset
  LossScaling loss_scale;            // of --precision fp16
  Device device = Device::cpu();
  std::string graph = "auto";     // on, off; auto: where the device can capture the step
  std::string prefetch = "auto";  // on, off; auto: a thread reads ahead, and where the device has streams
                                  // batches cross beside the step before
  std::string tune = "auto";      // a file of kiln tune, off; auto: the one beside the run's folder, if any
  int64_t steps = 500;
  int64_t batch = 8, context = 128;
  int micro_steps = 1;
  double lr = 1e-3, min_lr = -1;  // below 0: a tenth of lr
  int64_t warmup = -1;            // below 0: a tenth of the steps, at most 100
  double decay = 0.1, clip = 1;
  int64_t eval_every = 0, eval_batches = 10;
  int64_t save_every = -1;  // below 0: a tenth of the steps, from 50 to 1000
  int keep = 3;
  bool stop_on_save_error = false;
  int64_t sample_every = 0;    // steps; 0: only after the last
  int64_t sample_tokens = 80;  // 0: never
  std::string prompt;          // empty: the beginning of a line
  double held_out = 0.1;
  bool overfit = false;
  int threads = 0;  // of each rank; 0: all, shared out
  uint64_t seed = 0;
  std::string strategy = "none";  // by the names of strategy_names()
  int ranks = 1;                  // each takes its part of the batch
  int tensor_ranks = 1;           // of them, those that hold one model between them and take the same part
  std::string transport = "auto";
  double bucket_mb = 25;
  int fsdp_prefetch = 1;     // weights under way while one is in use
  bool bucket_auto = false;  // instead: as the link is (auto_bucket.h)
  std::string link;          // of LinkModel::parse: collectives are paced as on it; empty: they are not
  std::string results;       // the folder whose results.jsonl may know the link
  std::string wire = "fp32";
  bool canonical = false;  // the same bits on any number of ranks
  int chunks = 0;          // of a step's batch, which are then summed in a fixed order; 0: chunks_of
};

// What is known once everything is set up and before the first step.
struct TrainSetup {
  ModelConfig model;
  int64_t first_step = 0;  // steps that an earlier part of the run did
  std::string resumed;     // the checkpoint it goes on from; empty: from the beginning
  int64_t parameters = 0;  // elements
  ParamGroups groups;      // of them
  MemoryStats memory;      // predicted
  std::string text;        // what is trained on
  int64_t train_tokens = 0, validation_tokens = 0;
  int64_t tokens_per_step = 0;
  int threads = 1;
  double step_flops = 0;  // model operations of one step, all micro-steps together
  double peak_flops = 0;  // a second, measured: what this machine's multiply-adds reach
  std::string isa;
  std::string transport;  // what carries the ranks' collectives
  std::string products;   // where the choices of its matrix products are kept; empty: the library's own
};

struct TrainOutcome {
  int64_t steps = 0;       // of the whole run
  int64_t steps_now = 0;   // of them, those of this process
  std::string checkpoint;  // the last good one
  int64_t parameters = 0;
  int64_t skipped = 0;    // updates a loss scale left out, of the whole run
  RunTotals totals;       // of the whole run
  std::string sample;     // what the model writes now; empty where there is no tokenizer
  std::string transport;  // what carried the ranks' collectives
};

class TrainView : public RunListener {
 public:
  virtual void on_setup(const TrainRequest&, const TrainSetup&) {}
  virtual void on_saved(int64_t /*step*/, const std::string& /*checkpoint*/) {}
  virtual void on_sample_text(int64_t /*step*/, const std::string& /*text*/) {}
  virtual void on_warning(const std::string& /*line*/) {}
  virtual void on_note(const std::string& /*line*/) {}
  virtual void on_memory(const MemoryStats& /*measured*/) {}  // after the last step
};

// Throws Error(usage) for a request that cannot be, before anything is read.
void check_request(const TrainRequest& request);

// Goes on with what the run's folder holds, or begins. Throws when the last save failed, after all else is
// done.
TrainOutcome train(const TrainRequest& request, TrainView& view, const std::atomic<bool>& stop);

}  // namespace kiln::cli
