#include "data/load_tokenizer.h"

#include <filesystem>
#include <optional>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/mapped_file.h"
#include "data/byte_tokenizer.h"
#include "data/hf_tokenizer.h"
#include "data/tiktoken_file.h"
#include "data/vocab_merges.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

std::string read(const fs::path& path) {
  return read_small_file(path.string(), kMostBytes, "a tokenizer file");
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

BpeModel load_pair(const fs::path& vocab) {
  const fs::path merges = vocab.parent_path() / "merges.txt";
  if (!is_file(merges))
    throw Error(cat(vocab.string(), " has no merges.txt next to it"), "both files are needed");
  return parse_vocab_merges(read(vocab), read(merges), vocab.string(), merges.string());
}

BpeModel load_file(const fs::path& path, const std::string& pattern) {
  const std::string text = read(path);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) throw Error(cat(path.string(), " is empty; expected a tokenizer"));
  if (text[first] != '{') return parse_tiktoken(text, {.pattern = pattern, .specials = {}}, path.string());
  // vocab.json is an object of nothing but ids; tokenizer.json has a model.
  if (path.filename() == "vocab.json") return load_pair(path);
  return parse_hf_tokenizer(text, path.string());
}

std::optional<fs::path> find_in(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "vocab.json", "tokenizer.model"}) {
    if (is_file(folder / name)) return folder / name;
  }
  for (const FolderEntry& e : list_folder(folder.string())) {
    if (e.name.ends_with(".tiktoken")) return folder / e.name;
  }
  return {};
}

fs::path file_in(const fs::path& folder) {
  if (const auto found = find_in(folder)) return *found;
  throw Error(cat("the folder ", folder.string(), " holds no tokenizer"),
              "expected tokenizer.json, vocab.json with merges.txt, or a .tiktoken file");
}

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& name_or_path, const std::string& pattern) {
  if (name_or_path == "byte") return make_byte_tokenizer();
  std::error_code error;
  const fs::file_status status = fs::status(name_or_path, error);
  if (!fs::exists(status)) {
    throw Error(cat("there is no tokenizer ", name_or_path), "give a file, a folder, or 'byte'");
  }
  const fs::path path = fs::is_directory(status) ? file_in(name_or_path) : fs::path(name_or_path);
  return make_bpe_tokenizer(load_file(path, pattern));
}

std::shared_ptr<const Tokenizer> load_tokenizer_of(int64_t model_vocab, const std::string& name_or_path) {
  if (name_or_path == "byte" && model_vocab == 256) return make_byte_tokenizer(/*end_of_text=*/false);
  return load_tokenizer(name_or_path);
}

bool holds_tokenizer(const std::string& folder) {
  std::error_code ignored;
  return fs::is_directory(folder, ignored) && find_in(folder).has_value();
}

std::string tokenizer_json(const Tokenizer& tokenizer) {
  if (const auto* bpe = dynamic_cast<const BpeTokenizer*>(&tokenizer)) return hf_tokenizer_json(bpe->model());
  BpeModel model;
  for (int32_t id = 0; id < 256; ++id) model.tokens.emplace_back(tokenizer.bytes_of(id));
  model.specials = tokenizer.specials();
  model.splitter = make_gpt2_splitter();
  return hf_tokenizer_json(model);
}

void save_tokenizer(const Tokenizer& tokenizer, const std::string& folder) {
  write_file_atomically((fs::path(folder) / "tokenizer.json").string(), tokenizer_json(tokenizer));
}

}  // namespace kiln
