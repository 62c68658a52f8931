#include "data/token_folder.h"

#include <filesystem>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "data/bpe_model.h"
#include "data/token_format.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "kiln-tokens-1";

std::string manifest(const std::string& folder) { return (fs::path(folder) / "dataset.json").string(); }

std::vector<ShardFile> parse_list(const JsonValue& list) {
  std::vector<ShardFile> files;
  for (std::size_t i = 0; i < list.array().size(); ++i) {
    const JsonValue f = list.at(i);
    const std::string name = f.at("file").string();
    if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos ||
        name == "..")
      f.at("file").fail(
          cat("is '", name.substr(0, 80), "'; expected the plain name of a file in the same folder"));
    files.push_back({name, f.at("tokens").integer(1, ShardWriter::kMostTokens)});
  }
  return files;
}

Json to_json(const std::vector<ShardFile>& files) {
  auto list = Json::array();
  for (const ShardFile& f : files) list.push_back({{"file", f.name}, {"tokens", f.tokens}});
  return list;
}

}  // namespace

bool is_token_folder(const std::string& folder) {
  std::error_code ignored;
  return fs::is_regular_file(manifest(folder), ignored);
}

TokenFolder parse_dataset_json(std::string_view text, std::string_view source) {
  const Json document = parse_json(text, {.max_bytes = std::size_t{16} << 20}, source);
  const JsonValue root(document, source);
  if (root.at("format").string() != kFormat)
    root.at("format").fail(cat("is '", root.at("format").string(), "'; expected '", kFormat, "'"));
  TokenFolder content;
  const JsonValue tokenizer = root.at("tokenizer");
  content.tokenizer = tokenizer.at("kind").string();
  content.fingerprint = tokenizer.at("fingerprint").string();
  content.vocab_size = static_cast<int32_t>(tokenizer.at("vocab_size").integer(1, 2 * BpeModel::kMostTokens));
  content.train = parse_list(root.at("train"));
  content.val = parse_list(root.at("val"));
  return content;
}

TokenFolder read_token_folder(const std::string& folder) {
  const std::string path = manifest(folder);
  TokenFolder content =
      parse_dataset_json(read_small_file(path, std::size_t{16} << 20, "a dataset.json"), path);
  for (const auto* list : {&content.train, &content.val}) {
    for (const ShardFile& f : *list) {
      const MappedFile file((fs::path(folder) / f.name).string());
      const TokenLayout layout = sniff_tokens(file.bytes(), file.path());
      if (layout.count != f.tokens)
        throw Error(cat(file.path(), " has ", layout.count, " tokens; ", path, " says ", f.tokens));
    }
  }
  return content;
}

void write_dataset_json(const std::string& folder, const TokenFolder& content) {
  const Json page = {{"format", kFormat},
                     {"tokenizer",
                      {{"kind", content.tokenizer},
                       {"file", "tokenizer.json"},
                       {"fingerprint", content.fingerprint},
                       {"vocab_size", content.vocab_size}}},
                     {"train", to_json(content.train)},
                     {"val", to_json(content.val)}};
  write_file_atomically(manifest(folder), page.dump(1) + "\n");
}

}  // namespace kiln
