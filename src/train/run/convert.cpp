#include "train/run/convert.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <set>

#include "base/atomic_file.h"
#include "base/atomic_folder.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "model/hf_index.h"
#include "train/run/model_folder.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

// What goes along unread: kiln convert changes weights only.
constexpr const char* kCopied[] = {"tokenizer.json", "tokenizer_config.json",   "vocab.json",
                                   "merges.txt",     "special_tokens_map.json", "generation_config.json"};

// A file that is in a model's folder and may be replaced with it.
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
  HfConfig c;
  if (!request.fresh.model.empty()) c = read_hf_config(request.fresh.model);
  c.model = model_of(request.fresh).config;
  return c;
}

}  // namespace

void check_request(const ConvertRequest& r) {
  const bool fresh = !r.fresh.sizes.empty() || !r.fresh.model.empty();
  if (r.from.empty() && !fresh)
    throw Error("kiln convert needs --from, --size or --model",
                "--from DIR reads a model; --size NAME and --model FILE make a fresh one", ErrorKind::usage);
  if ((!r.from.empty() && fresh) || (!r.fresh.sizes.empty() && !r.fresh.model.empty()))
    throw Error("of --from, --size and --model only one can be given",
                "--from DIR reads a model; --size NAME and --model FILE make a fresh one", ErrorKind::usage);
  if (!r.from.empty() && asks_for_model(r.fresh))
    throw Error("--from is given with dimensions of a model, and its weights have the shape they have",
                "--layers, --heads and their like are for a fresh model: --size NAME or --model FILE",
                ErrorKind::usage);
  if (r.to.empty()) throw Error("kiln convert needs --to", "give the folder to write", ErrorKind::usage);
  if (r.rope_given && r.from.empty())
    throw Error("--rope is given without --from; a fresh model has no order to tell", {}, ErrorKind::usage);
}

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

}  // namespace kiln
