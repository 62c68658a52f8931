#include <algorithm>
#include <filesystem>

#include "base/mapped_file.h"
#include "base/safetensors.h"
#include "model/hf_folder.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/checkpoint_names.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/optimizer_values.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

// Beyond being as it was written: that all was written, and by whom it says.
void check_complete(const std::string& folder, const Manifest& m, int64_t step) {
  for (const char* name : {"config.json", kOptimizerFile, kStateFile}) {
    if (std::none_of(m.files.begin(), m.files.end(), [&](const ManifestFile& f) { return f.name == name; }))
      throw Error(cat(folder, " has no ", name));
  }
  const int64_t stored = read_train_state(folder).step();
  if (m.step != step || stored != step)
    throw Error(cat(folder, " holds step ", stored, " (manifest: ", m.step, "), not ", step));
}

void load_state(const SafetensorsFile& file, const std::vector<WeightSpec>& weights,
                const OptimizerState& state, OptimizerValues values) {
  std::vector<float> piece;
  for (const WeightSpec& w : weights) {
    const std::string name = state_name(state, w.name);
    const auto entry = file.header().find(name);
    if (!entry) throw Error(cat(file.path(), " lacks the tensor ", name, " ", w.shape.str()));
    if (entry->type != SafetensorsType::f32 || !same_shape(entry->shape, w.shape))
      throw Error(cat(file.path(), ": tensor ", name, " is ", name_of(entry->type), " ", entry->shape_text(),
                      "; this run needs F32 ", w.shape.str()));
    const std::span<const std::byte> bytes = file.bytes(*entry);
    for_each_piece(w, 1, [&](int64_t row, int64_t rows) {
      if (!values.holds(w, row, rows)) return;  // another rank's
      piece.resize(static_cast<std::size_t>(rows * w.columns()));
      to_floats(SafetensorsType::f32,
                bytes.data() + static_cast<std::size_t>(row * w.columns()) * sizeof(float), piece);
      values.write(w, row, piece);
    });
  }
}

}  // namespace

std::optional<std::string> newest_checkpoint(const std::string& checkpoints, const Warn& warn) {
  const std::vector<int64_t> steps = checkpoint_steps(checkpoints);
  std::string why;
  for (const int64_t step : steps) {
    std::string folder = (fs::path(checkpoints) / checkpoint_name(step)).string();
    try {
      check_complete(folder, verify_checkpoint(folder), step);
      return folder;
    } catch (const Error& e) {
      why = e.what();
      if (warn) warn(cat("skipping checkpoint ", folder, ": ", why));
    }
  }
  if (!steps.empty())
    throw Error(cat("none of the ", steps.size(), " checkpoint(s) in ", checkpoints, " is whole: ", why),
                "`kiln train --fresh` restarts; what is there is moved aside, not deleted");
  return std::nullopt;
}

TrainState read_train_state(const std::string& checkpoint) {
  const std::string path = (fs::path(checkpoint) / kStateFile).string();
  return parse_train_state(read_small_file(path, std::size_t{1} << 20, "a checkpoint's state"), path);
}

void check_same_run(const std::string& checkpoint, const ModelConfig& model, const RunIdentity& identity) {
  const ModelConfig saved = read_hf_config((fs::path(checkpoint) / "config.json").string()).model;
  const RunIdentity before = read_train_state(checkpoint).identity;
  const auto same = [&](std::string_view what, const auto& then, const auto& now) {
    if (then == now) return;
    throw Error(cat(checkpoint, " has ", what, " ", then, "; this run has ", now),
                "resume with what it has, name another folder with --out, or restart with --fresh");
  };
  same("the tokenizer", before.tokenizer, identity.tokenizer);
  same("the vocabulary", saved.vocab, model.vocab);
  same("d_model", saved.d_model, model.d_model);
  same("d_ff", saved.d_ff, model.d_ff);
  same("layers", saved.layers, model.layers);
  same("heads", saved.heads, model.heads);
  same("kv_heads", saved.kv_heads, model.kv_heads);
  same("head_dim", saved.head_dim(), model.head_dim());
  same("rope_theta", saved.rope_theta, model.rope_theta);
  same("scaled positions", text_of(saved.rope_scaling), text_of(model.rope_scaling));
  same("the attention window", saved.window, model.window);
  same("norm_eps", saved.norm_eps, model.norm_eps);
  same("tied embeddings", saved.tied, model.tied);
  same("the precision", before.precision, identity.precision);
  same("the optimizer", before.optimizer, identity.optimizer);
}

void load_checkpoint(const std::string& checkpoint, const CheckpointParts& parts) {
  const ModelConfig& config = parts.model.config();
  ParamStore& store = parts.model.params();
  HfFolder weights(checkpoint);  // reads any layout into any: files know whole tensors only
  load_weights(weights, config, RopeLayout::halves, parts.ctx, store);
  const SafetensorsFile file((fs::path(checkpoint) / kOptimizerFile).string());
  const std::vector<WeightSpec> specs = weight_specs(config);
  for (const OptimizerState& state : parts.optimizer.state())
    load_state(file, specs, state, {parts.ctx, store, parts.optimizer, state});
}

}  // namespace kiln
