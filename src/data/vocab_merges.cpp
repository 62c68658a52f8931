#include "data/vocab_merges.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_reader.h"
#include "data/byte_level.h"

namespace kiln {

void read_vocab(const JsonValue& vocab, const SpecialTokens& specials, BpeModel& model) {
  const auto& entries = vocab.object();
  // Ids may have gaps (Hugging Face allows them), but not so wide that the file's size says nothing of the
  // table's.
  const uint64_t most = std::min<uint64_t>(BpeModel::kMostTokens, 4 * entries.size() + 4096) - 1;
  uint64_t largest = 0;
  for (const auto& [text, id] : entries)
    largest = std::max(largest, vocab.child(text.substr(0, 80), id).unsigned_integer(most));
  if (entries.empty()) vocab.fail("is empty");
  model.tokens.resize(largest + 1);
  for (const auto& [text, value] : entries) {
    const auto id = value.get<int32_t>();
    if (const auto special = specials.id_of(text); special == id) continue;
    const auto bytes = from_byte_level(text);
    if (!bytes || bytes->empty())
      vocab.fail(
          cat("has the entry '", text.substr(0, 80), "', which is not spelled in ByteLevel's alphabet"));
    std::string& token = model.tokens[static_cast<std::size_t>(id)];
    if (!token.empty())
      vocab.fail(cat("gives id ", id, " to two tokens, one of them '", text.substr(0, 80), "'"));
    token = *bytes;
  }
}

int32_t MergeReader::id_of(const std::string& bytes, std::string_view shown, std::string_view where) const {
  const auto found = ids_.find(bytes);
  if (found == ids_.end()) throw Error(cat(where, ": '", shown.substr(0, 80), "' is not in the vocabulary"));
  return found->second;
}

void MergeReader::add(std::string_view left, std::string_view right, std::string_view where) {
  const auto a = from_byte_level(left), b = from_byte_level(right);
  if (!a || !b || a->empty() || b->empty())
    throw Error(
        cat(where, ": '", left.substr(0, 80), " ", right.substr(0, 80), "' is not a merge of two tokens"));
  const int32_t l = id_of(*a, left, where), r = id_of(*b, right, where);
  const int32_t result = id_of(*a + *b, cat(left, right), where);
  model_.merges.push_back({l, r, result, static_cast<int32_t>(model_.merges.size())});
}

BpeModel parse_vocab_merges(std::string_view vocab_json, std::string_view merges_text,
                            std::string_view vocab_source, std::string_view merges_source) {
  const Json document = parse_json(vocab_json, {}, vocab_source);
  const JsonValue vocab(document, vocab_source);
  BpeModel model;
  if (vocab.has(kEndOfText)) {
    const auto id = vocab.at(kEndOfText).unsigned_integer(BpeModel::kMostTokens - 1);
    model.specials = SpecialTokens({{std::string(kEndOfText), static_cast<int32_t>(id)}});
  }
  read_vocab(vocab, model.specials, model);
  MergeReader merges(model);
  for (std::size_t number = 1; !merges_text.empty(); ++number) {
    const std::size_t end = merges_text.find('\n');
    std::string_view line = merges_text.substr(0, end);
    merges_text.remove_prefix(end == std::string_view::npos ? merges_text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const std::string where = cat(merges_source, " line ", number);
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      throw Error(cat(where, ": '", line.substr(0, 80), "' is not two tokens with a space between"));
    merges.add(line.substr(0, space), line.substr(space + 1), where);
  }
  model.splitter = make_splitter("gpt2");
  model.check(vocab_source);
  return model;
}

std::string vocab_json(const BpeModel& model) {
  std::vector<std::pair<int32_t, std::string>> entries;
  for (std::size_t id = 0; id < model.tokens.size(); ++id) {
    if (!model.tokens[id].empty())
      entries.emplace_back(static_cast<int32_t>(id), to_byte_level(model.tokens[id]));
  }
  for (const SpecialToken& t : model.specials.all()) entries.emplace_back(t.id, t.text);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // By hand, since an ordered object of nlohmann's searches all its keys for each one added.
  std::string text;
  for (const auto& [id, token] : entries)
    text += cat(text.empty() ? "{" : ",\n", Json(token).dump(), ":", id);
  return text + "}";
}

std::string merges_txt(const BpeModel& model) {
  std::string text = "#version: 0.2\n";
  for (const BpeMerge& m : one_merge_per_token(model)) {
    text += cat(to_byte_level(model.tokens[static_cast<std::size_t>(m.left)]), " ",
                to_byte_level(model.tokens[static_cast<std::size_t>(m.right)]), "\n");
  }
  return text;
}

}  // namespace kiln
