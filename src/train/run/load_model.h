// A model from disk with its tokenizer, for commands that use one and do not train it.
#pragma once

#include <memory>
#include <string>

#include "base/options.h"
#include "data/tokenizer.h"
#include "model/hf_folder.h"
#include "model/model.h"

namespace kiln {

struct ModelRequest {
  std::string checkpoint = {};
  std::string tokenizer = {};      // empty: that of the checkpoint
  std::string precision = "fp32";  // or bf16: what it computes in, whatever the files hold
  std::string variants = {};
  std::string device = "auto";
  int threads = 0;  // 0: all
};

// --checkpoint, --tokenizer, --precision, --variant and --threads.
void add_loaded_model_options(Options& options, ModelRequest& request);

// Throw Error(usage).
Precision precision_named(const std::string& name);
void check_model_request(const ModelRequest& request, const std::string& command);

RankOptions rank_options(const ModelRequest& request, uint64_t seed);

struct LoadedModel {
  std::string folder;
  HfConfig config;
  std::unique_ptr<Model> model;
  std::shared_ptr<const Tokenizer> tokenizer;  // null where none is named and the folder has none
  int64_t parameters = 0;

  // What a decoding step reads of the weights: all of them, but of an embedding that is not the head as well
  // only a row for each token.
  std::size_t weight_bytes_per_step() const;
};

// `progress` as in load_weights. A tokenizer whose vocabulary is not the model's is an Error.
LoadedModel load_model(RankContext& ctx, const ModelRequest& request, const WeightProgress& progress = {});

// Throws Error with both sizes.
void check_vocabulary(const Tokenizer& tokenizer, const LoadedModel& model);

}  // namespace kiln
