// The options that choose a model, shared by all commands: a size known by name, or a
// custom model, and single dimensions on top of either.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "model/size_registry.h"

namespace kiln {

struct ModelOptions {
  std::vector<std::string> sizes = {};  // by the names of `kiln sizes`
  std::string model = {};               // instead: a config.json, or a Hugging Face folder
  std::optional<int64_t> layers = {}, d_model = {}, d_ff = {}, heads = {}, kv_heads = {}, vocab = {};
  bool tied = false;
};

// A model and what it is called in rows: "small", "my-model", "small+layers=2".
struct NamedModel {
  NamedModel() = default;
  NamedModel(std::string name, const ModelConfig& config) : name(std::move(name)), config(config) {}
  NamedModel(const ModelSize& size) : name(size.name), config(config_of(size)) {}

  std::string name;
  ModelConfig config;
};

// --size (several: a list), --model, --layers, --d-model, --d-ff, --heads, --kv-heads, --vocab and
// --tie-embeddings. Without --vocab where the vocabulary is that of a text.
void add_model_options(Options& options, ModelOptions& model, bool several, bool vocabulary = true);

// Throws Error(usage) for a model that cannot be built, or one that weights on disk contradict.
std::vector<NamedModel> models_of(const ModelOptions& options);
NamedModel model_of(const ModelOptions& options);  // of the only one

// Whether anything of a model is requested.
bool asks_for_model(const ModelOptions& options);

inline const ModelConfig& config_of(const NamedModel& m) { return m.config; }
int64_t param_count(const NamedModel& model);
double train_flops_per_token(const NamedModel& model, int64_t context);

}  // namespace kiln
