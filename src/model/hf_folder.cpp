#include "model/hf_folder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "model/hf_index.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHead = "lm_head.weight", kEmbedding = "model.embed_tokens.weight";

bool is_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool can_read(SafetensorsType type) {
  return type == SafetensorsType::f32 || type == SafetensorsType::bf16 || type == SafetensorsType::f16 ||
         type == SafetensorsType::f64;
}

// Frequencies of the rotary embedding, which old files carry and every reader recomputes.
bool is_left_over(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

template <class T>
void widen(const std::byte* bytes, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    out[i] = static_cast<float>(value);
  }
}

}  // namespace

bool same_shape(std::span<const uint64_t> a, const Shape& b) {
  if (a.size() != static_cast<std::size_t>(b.rank())) return false;
  for (int i = 0; i < b.rank(); ++i) {
    if (a[static_cast<std::size_t>(i)] != static_cast<uint64_t>(b[i])) return false;
  }
  return true;
}

void to_floats(SafetensorsType type, const std::byte* bytes, std::span<float> out) {
  switch (type) {
    case SafetensorsType::f32:
      std::memcpy(out.data(), bytes, out.size_bytes());
      return;
    case SafetensorsType::bf16:
      return widen<bf16>(bytes, out);
    case SafetensorsType::f16:
      return widen<fp16>(bytes, out);
    case SafetensorsType::f64:
      return widen<double>(bytes, out);
    default:
      throw Error(cat("weights of ", name_of(type), " are not read"));
  }
}

HfFolder::HfFolder(const std::string& folder) : path_(folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw Error(cat("there is no folder ", folder), "give a folder with config.json and model.safetensors");
  config_ = read_hf_config((fs::path(folder) / "config.json").string());
  open_files();
  check_weights();
}

void HfFolder::open_files() {
  const std::string single = (fs::path(path_) / "model.safetensors").string();
  const std::string index = (fs::path(path_) / kHfIndexName).string();
  if (is_file(single) && is_file(index))
    throw Error(cat(path_, " has both model.safetensors and ", kHfIndexName, "; expected one of them"));
  if (is_file(index)) {
    open_shards(index);
    return;
  }
  if (!is_file(single)) {
    const bool pickle = is_file((fs::path(path_) / "pytorch_model.bin").string()) ||
                        is_file((fs::path(path_) / "pytorch_model.bin.index.json").string());
    throw Error(
        cat(path_, " has neither model.safetensors nor ", kHfIndexName),
        pickle
            ? "pytorch_model.bin is not read, since pickle files can run code: save the model as safetensors"
            : "");
  }
  const SafetensorsFile& file = files_.emplace_back(single);
  for (std::size_t i = 0; i < file.header().size(); ++i) {
    const SafetensorsEntry e = file.header()[i];
    places_.emplace(e.name, Place{&file, e});
  }
}

void HfFolder::open_shards(const std::string& index_path) {
  const HfIndex index = read_hf_index(index_path);
  std::map<std::string, const SafetensorsFile*> by_name;
  uint64_t bytes = 0;
  for (const auto& [tensor, name] : index.weight_map) {
    const SafetensorsFile*& file = by_name[name];
    if (file == nullptr) {
      file = &files_.emplace_back((fs::path(path_) / name).string());
      bytes += file->data_bytes();
    }
    const auto entry = file->header().find(tensor);
    if (!entry)
      throw Error(cat(index_path, ": tensor '", tensor, "' is said to be in ", name, ", which lacks it"));
    places_.emplace(tensor, Place{file, *entry});
  }
  for (const SafetensorsFile& file : files_) {
    for (std::size_t i = 0; i < file.header().size(); ++i) {
      const std::string_view name = file.header()[i].name;
      const auto found = places_.find(name);
      if (found == places_.end() || found->second.file != &file)
        throw Error(cat(file.path(), ": tensor '", name, "' is ",
                        found == places_.end() ? std::string("not in the index")
                                               : cat("also in ", found->second.file->path())));
    }
  }
  if (index.total_size && *index.total_size != bytes)
    throw Error(cat(index_path, ": metadata.total_size is ", *index.total_size, "; the files have ", bytes,
                    " bytes of tensors"));
}

void HfFolder::check_weights() {
  weights_ = weight_specs(config_.model);
  for (const WeightSpec& w : weights_) {
    const auto found = places_.find(w.name);
    if (found == places_.end())
      throw Error(
          cat(path_, " lacks the tensor ", w.name, " ", w.shape.str()),
          w.name == kHead ? "config.json says tie_word_embeddings false: the head must be there" : "");
    const auto& [file, entry] = found->second;
    if (!same_shape(entry.shape, w.shape))
      throw Error(cat(file->path(), ": tensor ", w.name, " is ", entry.shape_text(),
                      "; config.json makes it ", w.shape.str()));
    if (!can_read(entry.type))
      throw Error(cat(file->path(), ": tensor ", w.name, " is ", name_of(entry.type),
                      "; kiln reads F32, BF16, F16 and F64"));
  }
  std::size_t left_over = 0;
  for (const auto& [name, place] : places_) left_over += is_left_over(name) ? 1 : 0;
  const auto head = places_.find(kHead);
  const bool tied_head = config_.model.tied && head != places_.end();
  if (places_.size() != weights_.size() + left_over + (tied_head ? 1 : 0)) {
    std::vector<std::string_view> known = {kHead};
    for (const WeightSpec& w : weights_) known.push_back(w.name);
    std::sort(known.begin(), known.end());
    for (const auto& [name, place] : places_) {
      if (!is_left_over(name) && !std::binary_search(known.begin(), known.end(), std::string_view(name)))
        throw Error(cat(place.file->path(), ": tensor '", name.substr(0, 200), "' ", place.entry.shape_text(),
                        " is not part of a LLaMA of this configuration"));
    }
  }
  if (tied_head) check_tied_head(head->second);
}

// Old files carry the head of a tied model too; then it must be the embedding.
void HfFolder::check_tied_head(const Place& head) {
  const auto embedding = std::find_if(weights_.begin(), weights_.end(),
                                      [](const WeightSpec& w) { return w.name == kEmbedding; });
  const WeightSpec spec{std::string(kHead), embedding->shape, {}};
  if (!same_shape(head.entry.shape, spec.shape))
    throw Error(cat(head.file->path(), ": tensor ", kHead, " is ", head.entry.shape_text(),
                    "; config.json makes it ", spec.shape.str()));
  if (!can_read(head.entry.type))
    throw Error(cat(head.file->path(), ": tensor ", kHead, " is ", name_of(head.entry.type),
                    "; kiln reads F32, BF16, F16 and F64"));
  std::vector<float> a, b;
  for_each_piece(spec, 1, [&](int64_t row, int64_t rows) {
    a.resize(static_cast<std::size_t>(rows * spec.columns()));
    b.resize(a.size());
    read(spec, row, a);
    read(*embedding, row, b);
    if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0)
      throw Error(cat(head.file->path(), ": ", kHead, " differs from ", kEmbedding,
                      ", and config.json says tie_word_embeddings true"));
  });
}

uint64_t HfFolder::bytes() const {
  uint64_t sum = 0;
  for (const SafetensorsFile& f : files_) sum += f.data_bytes();
  return sum;
}

SafetensorsType HfFolder::type_of(const WeightSpec& weight) const {
  return places_.at(weight.name).entry.type;
}

void HfFolder::read(const WeightSpec& weight, int64_t first_row, std::span<float> out) {
  const auto found = places_.find(weight.name);
  if (found == places_.end()) throw Error(cat(path_, " has no tensor ", weight.name));
  const auto& [file, entry] = found->second;
  if (!same_shape(entry.shape, weight.shape))
    throw Error(cat(file->path(), ": tensor ", weight.name, " is ", entry.shape_text(), "; ",
                    weight.shape.str(), " is needed"));
  const std::size_t size = static_cast<std::size_t>(bits_of(entry.type)) / 8;
  const std::span<const std::byte> bytes = file->bytes(entry);
  const auto begin = static_cast<std::size_t>(first_row * weight.columns());
  if (first_row < 0 || begin > bytes.size() / size || out.size() > bytes.size() / size - begin)
    throw Error(cat(file->path(), ": tensor ", weight.name, ": ", out.size(), " values from row ", first_row,
                    " on reach beyond its end"));
  to_floats(entry.type, bytes.data() + begin * size, out);
}

void load_weights(WeightSource& source, const ModelConfig& config, RopeLayout layout, RankContext& ctx,
                  ParamStore& store, const WeightProgress& progress) {
  ParamValues values(ctx, store);
  RelaidWeights relaid(source, config.head_dim(), layout, RopeLayout::halves);
  const std::vector<WeightSpec> weights = weight_specs(config);
  uint64_t done = 0, all = 0;
  for (const WeightSpec& w : weights) all += static_cast<uint64_t>(w.shape.numel()) * sizeof(float);
  std::vector<float> piece;
  for (const WeightSpec& w : weights) {
    for_each_piece(w, is_turned(w) ? config.head_dim() : 1, [&](int64_t row, int64_t rows) {
      done += static_cast<uint64_t>(rows * w.columns()) * sizeof(float);
      if (!values.holds(w, row, rows)) return;  // another rank's
      piece.resize(static_cast<std::size_t>(rows * w.columns()));
      relaid.read(w, row, piece);
      values.write(w, row, piece);
      if (progress) progress(done, all);
    });
  }
}

}  // namespace kiln
