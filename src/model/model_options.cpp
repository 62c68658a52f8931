#include "model/model_options.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/error.h"
#include "model/hf_config.h"
#include "model/size_registry.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

struct Dimension {
  const char* name;
  std::optional<int64_t> ModelOptions::* asked;
  int64_t ModelConfig::* field;
};

constexpr Dimension kDimensions[] = {
    {"layers", &ModelOptions::layers, &ModelConfig::layers},
    {"d_model", &ModelOptions::d_model, &ModelConfig::d_model},
    {"d_ff", &ModelOptions::d_ff, &ModelConfig::d_ff},
    {"heads", &ModelOptions::heads, &ModelConfig::heads},
    {"kv_heads", &ModelOptions::kv_heads, &ModelConfig::kv_heads},
};

NamedModel read_model(const std::string& path) {
  const bool folder = fs::is_directory(path);
  fs::path name = fs::path(path).lexically_normal();
  if (name.filename().empty() || (!folder && name.filename() == "config.json")) name = name.parent_path();
  std::string word = name.filename().string();
  if (word.empty()) word.push_back('.');
  return {word, read_hf_config(path).model};
}

// Dimensions on top of a model. As many key and value heads as heads, unless either says otherwise.
NamedModel adjusted(NamedModel m, const ModelOptions& o) {
  std::string changes;
  const bool grouped = m.config.kv_heads != m.config.heads;
  for (const Dimension& d : kDimensions) {
    if (!(o.*d.asked) || *(o.*d.asked) == m.config.*d.field) continue;
    m.config.*d.field = *(o.*d.asked);
    changes += cat(changes.empty() ? "" : ",", d.name, "=", m.config.*d.field);
  }
  if (o.heads && !o.kv_heads && !grouped) m.config.kv_heads = m.config.heads;
  if (o.tied && !m.config.tied) {
    m.config.tied = true;
    changes += cat(changes.empty() ? "" : ",", "tied");
  }
  if (o.vocab) m.config.vocab = *o.vocab;
  if (!changes.empty()) m.name.append("+").append(changes);
  check_config(m.config);
  return m;
}

// Weights on disk have the shape they have.
void check_folder(const ModelOptions& o, const NamedModel& before, const NamedModel& after) {
  if (before.name == after.name && before.config.vocab == after.config.vocab) return;
  throw Error(cat(o.model, " has weights of another shape than ", after.name, " with a vocabulary of ",
                  after.config.vocab),
              "--layers, --heads and their like are for a fresh model: give its config.json",
              ErrorKind::usage);
}

}  // namespace

void add_model_options(Options& options, ModelOptions& m, bool several, bool vocabulary) {
  constexpr NumberRange<int64_t> kDimension = {1, 1 << 24};
  options
      .opt("--size", m.sizes,
           several ? "model sizes, as `kiln sizes` lists them" : "model size, as `kiln sizes` lists them")
      .value(several ? "NAME,..." : "NAME");
  options.opt("--model", m.model, "instead of --size: a config.json or a Hugging Face folder")
      .value("PATH")
      .instead_of("--size");
  const char* const kAsModel = "the model's";
  options.opt("--layers", m.layers, kDimension, "blocks").unset(kAsModel);
  options.opt("--d-model", m.d_model, kDimension, "model width").unset(kAsModel);
  options.opt("--d-ff", m.d_ff, kDimension, "feed-forward width").unset(kAsModel);
  options.opt("--heads", m.heads, kDimension, "attention heads").unset(kAsModel);
  options.opt("--kv-heads", m.kv_heads, kDimension, "key and value heads").unset(kAsModel);
  if (vocabulary) options.opt("--vocab", m.vocab, kDimension, "vocabulary size").unset(kAsModel);
  options.opt("--tie-embeddings", m.tied, "tie the output head to the embedding").was("--tied");
}

std::vector<NamedModel> models_of(const ModelOptions& o) {
  std::vector<NamedModel> models;
  if (!o.model.empty()) {
    const NamedModel read = read_model(o.model);
    models.push_back(adjusted(read, o));
    if (std::filesystem::is_directory(o.model)) check_folder(o, read, models.front());
    return models;
  }
  for (std::string name : o.sizes) {
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const ModelSize& size = find_model_size(name);
    NamedModel m = adjusted({std::string(size.name), config_of(size)}, o);
    bool there = false;
    for (const NamedModel& other : models) there = there || other.name == m.name;
    if (!there) models.push_back(std::move(m));
  }
  return models;
}

NamedModel model_of(const ModelOptions& o) {
  const std::vector<NamedModel> models = models_of(o);
  if (models.size() != 1)
    throw Error(cat("--size is '", joined(o.sizes), "'; expected one"),
                "one run has one model; bench commands sweep several with --grid size=...", ErrorKind::usage);
  return models.front();
}

bool asks_for_model(const ModelOptions& o) {
  const auto asked = [&](const Dimension& d) { return (o.*d.asked).has_value(); };
  return !o.sizes.empty() || !o.model.empty() || o.vocab || o.tied ||
         std::any_of(std::begin(kDimensions), std::end(kDimensions), asked);
}

int64_t param_count(const NamedModel& m) {
  const ModelConfig& c = m.config;
  const int64_t kv = c.kv_heads * c.head_dim(), q = c.heads * c.head_dim();
  const int64_t block = 2 * c.d_model * (q + kv) + 3 * c.d_model * c.d_ff + 2 * c.d_model;  // matrices; norms
  return (c.tied ? 1 : 2) * c.vocab * c.d_model + c.layers * block + c.d_model;
}

double train_flops_per_token(const NamedModel& m, int64_t context) {
  const auto product = [](auto... n) { return (static_cast<double>(n) * ...); };
  const ModelConfig& c = m.config;
  const int64_t looked_up = c.tied ? 0 : c.vocab * c.d_model;  // the head is multiplied, the lookup is not
  return product(6, param_count(m) - looked_up) + product(6, c.layers, c.heads, c.head_dim(), context);
}

}  // namespace kiln
