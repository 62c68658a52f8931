#include "train/run/load_model.h"

#include "base/error.h"
#include "base/nearest_name.h"
#include "data/load_tokenizer.h"
#include "device/gpu_info.h"
#include "ops/op_list.h"
#include "ops/renamed.h"
#include "train/run/model_folder.h"

namespace kiln {

Precision precision_named(const std::string& name) {
  static constexpr std::string_view kNames[] = {"fp32", "bf16"};
  if (name == kNames[0]) return Precision::fp32;
  if (name == kNames[1]) return Precision::bf16;
  const std::string near = nearest_name(name, kNames);
  throw Error(cat("--precision is '", name, "'; expected fp32 or bf16"),
              near.empty() ? "" : cat("did you mean '", near, "'?"), ErrorKind::usage);
}

void add_loaded_model_options(Options& o, ModelRequest& r) {
  o.opt("--checkpoint", r.checkpoint, "model folder (config.json, safetensors, tokenizer.json) or run folder")
      .value("DIR");
  o.opt("--tokenizer", r.tokenizer, "byte, or a tokenizer's file or folder").unset("that of --checkpoint");
  o.opt("--precision,--dtype", r.precision,
        checked_text([](const std::string& text) { (void)precision_named(text); }),
        "compute dtype: fp32 or bf16");
  o.opt("--variant", r.variants, "op variants: attention=naive,linear=packed,...")
      .value("OP=NAME,...")
      .was_values(former_names_in);
  o.opt("--threads", r.threads, between(0, 1024), "CPU threads").unset("all");
}

void check_model_request(const ModelRequest& r, const std::string& command) {
  if (r.checkpoint.empty())
    throw Error(cat("kiln ", command, " needs --checkpoint"), "give the folder of a model", ErrorKind::usage);
  (void)precision_named(r.precision);
  (void)parse_variants(r.variants);
  if (Device::parse(r.device).is_meta())
    throw Error(cat("kiln ", command, " needs values, and --device ", r.device, " has none"),
                "use cpu, cuda or auto", ErrorKind::usage);
}

RankOptions rank_options(const ModelRequest& r, uint64_t seed) {
  RankOptions o;
  o.device = Device::parse(r.device);
  o.threads = r.threads;
  o.seed = seed;
  o.variants = parse_variants(r.variants);
  return o;
}

std::size_t LoadedModel::weight_bytes_per_step() const {
  int64_t elements = parameters;
  if (!config.model.tied) elements -= config.model.vocab * config.model.d_model;
  return static_cast<std::size_t>(elements) * size_of(model->dtype());
}

LoadedModel load_model(RankContext& ctx, const ModelRequest& r, const WeightProgress& progress) {
  LoadedModel m;
  m.folder = model_folder(r.checkpoint);
  HfFolder files(m.folder);
  m.config = files.config();
  // The tokenizer first: what is wrong with it should show before gigabytes are read.
  if (!r.tokenizer.empty()) {
    m.tokenizer = load_tokenizer_of(m.config.model.vocab, r.tokenizer);
  } else if (holds_tokenizer(m.folder)) {
    m.tokenizer = load_tokenizer(m.folder);
  }
  if (m.tokenizer) check_vocabulary(*m.tokenizer, m);
  m.model = make_model(m.config.model);
  m.model->params().materialize(ctx, {.precision = precision_named(r.precision), .inference = true});
  load_weights(files, m.config.model, RopeLayout::halves, ctx, m.model->params(), progress);
  for (const Param& p : m.model->params().params()) m.parameters += p.shape.numel();
  return m;
}

void check_vocabulary(const Tokenizer& tokenizer, const LoadedModel& m) {
  // A model may have more: many pad their vocabulary to a round number.
  if (tokenizer.vocab_size() <= m.config.model.vocab) return;
  throw Error(cat("the tokenizer has ", tokenizer.vocab_size(), " tokens, the model in ", m.folder, " has ",
                  m.config.model.vocab),
              "give the tokenizer it was trained with: --tokenizer NAME");
}

}  // namespace kiln
