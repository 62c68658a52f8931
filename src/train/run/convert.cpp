#include "train/run/convert.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <set>

#include "base/atomic_file.h"
#include "base/atomic_folder.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "train/run/model_folder.h"
#include "model/hf_index.h"
#include "model/size_registry.h"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

// What goes along unread: kiln convert changes weights only.
constexpr const char* kCopied[] = {"tokenizer.json", "tokenizer_config.json",   "vocab.json",
                                   "merges.txt",     "special_tokens_map.json", "generation_config.json"};

// A file that stands in a model's folder and may be replaced with it.
bool is_model_file(std::string_view name) {
  if (name.ends_with(".tmp")) name.remove_suffix(4);  // of a write that was broken off
  for (const char* known : kCopied) {
    if (name == known) return true;
  }
  return name == "config.json" || name == kHfIndexName || name.ends_with(".safetensors");
}

std::vector<std::string> copy_tokenizer(const std::string& from, const std::string& to) {
  std::vector<std::string> copied;
  for (const char* name : kCopied) {
    const fs::path path = fs::path(from) / name;
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) continue;
    const MappedFile file(path.string());
    write_file_atomically((fs::path(to) / name).string(), file.text());
    copied.emplace_back(name);
  }
  return copied;
}

HfConfig fresh_config(const ConvertRequest& request) {
  if (!request.config.empty()) return read_hf_config(request.config);
  HfConfig c;
  c.model = config_of(find_model_size(request.random));
  return c;
}

}  // namespace

ConvertReport convert(const ConvertRequest& request, const WeightProgress& progress) {
  const auto begin = std::chrono::steady_clock::now();
  ConvertReport report;
  std::unique_ptr<RankContext> ctx;
  std::unique_ptr<WeightSource> source;
  // All that can be wrong with the source shows before the target is touched.
  if (!request.from.empty()) {
    report.from = model_folder(request.from);
    auto folder = std::make_unique<HfFolder>(report.from);
    report.config = folder->config();
    report.source_files = folder->files();
    report.source_bytes = folder->bytes();
    // The files know better than config.json what they hold.
    switch (folder->type_of(folder->weights().front())) {
      case SafetensorsType::bf16:
        report.config.dtype = DType::bf16;
        break;
      case SafetensorsType::f16:
        report.config.dtype = DType::f16;
        break;
      default:
        report.config.dtype = DType::f32;
    }
    source = std::move(folder);
  } else {
    report.config = fresh_config(request);
    report.config.dtype = DType::f32;
    RankOptions options;  // on the CPU: the values are the same everywhere
    options.seed = request.seed;
    ctx = std::make_unique<RankContext>(options);
    source = std::make_unique<RandomWeights>(*ctx);
  }
  if (request.dtype) report.config.dtype = *request.dtype;

  AtomicFolder target(request.to, request.force, is_model_file);
  report.tensors = save_hf_folder(target.temporary(), report.config, *source, request.save, progress);
  if (!request.from.empty()) report.copied = copy_tokenizer(report.from, target.temporary());
  target.commit();

  report.to = request.to;
  std::set<std::string> files;
  for (const SavedTensor& t : report.tensors) {
    report.parameters += t.shape.numel();
    report.bytes += t.bytes;
    files.insert(t.file);
  }
  report.files = files.size();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace kiln::cli
