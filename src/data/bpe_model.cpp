#include "data/bpe_model.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "data/bpe_merger.h"

namespace kiln {
namespace {

std::string quoted(std::string_view bytes) {
  std::string text = "'";
  for (const char c : bytes.substr(0, 40)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      text += c;
    } else {
      text += cat("\\x", "0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 0xf]);
    }
  }
  return text + "'";
}

}  // namespace

int32_t BpeModel::vocab_size() const {
  auto size = static_cast<int32_t>(tokens.size());
  if (!specials.empty()) size = std::max(size, specials.all().back().id + 1);
  return size;
}

void BpeModel::check(std::string_view source) const {
  if (tokens.size() > static_cast<std::size_t>(kMostTokens))
    throw Error(cat(source, ": ", tokens.size(), " tokens; at most ", kMostTokens, " are taken"));
  std::array<bool, 256> has_byte{};
  for (const std::string& t : tokens) {
    if (t.size() > kLongestToken)
      throw Error(cat(source, ": token ", &t - tokens.data(), " has ", t.size(), " bytes; at most ",
                      kLongestToken, " are taken"));
    if (t.size() == 1) has_byte[static_cast<unsigned char>(t[0])] = true;
  }
  for (std::size_t b = 0; b < 256; ++b) {
    if (!has_byte[b])
      throw Error(cat(source, ": byte ", b, " has no token of its own, so not every text can be encoded"));
  }
  TokenIds seen;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) continue;
    const auto [where, fresh] = seen.emplace(tokens[id], static_cast<int32_t>(id));
    if (!fresh)
      throw Error(cat(source, ": tokens ", where->second, " and ", id, " are both ", quoted(tokens[id])));
  }
  for (const SpecialToken& t : specials.all()) {  // an id that means two texts cannot be decoded
    const auto id = static_cast<std::size_t>(t.id);
    if (id < tokens.size() && !tokens[id].empty() && tokens[id] != t.text)
      throw Error(cat(source, ": id ", t.id, " is both the special token ", quoted(t.text), " and ",
                      quoted(tokens[id])));
  }
  const auto at = [&](int32_t id) -> const std::string& {
    if (id < 0 || static_cast<std::size_t>(id) >= tokens.size() ||
        tokens[static_cast<std::size_t>(id)].empty())
      throw Error(cat(source, ": a merge uses token ", id, ", which is not in the vocabulary"));
    return tokens[static_cast<std::size_t>(id)];
  };
  for (const BpeMerge& m : merges) {
    if (at(m.left) + at(m.right) != at(m.result))
      throw Error(cat(source, ": merge ", m.rank, " of ", quoted(at(m.left)), " and ", quoted(at(m.right)),
                      " gives ", quoted(at(m.result))));
  }
  if (splitter == nullptr) throw Error(cat(source, ": no pattern to split text by"));
}

TokenIds token_ids(const std::vector<std::string>& tokens) {
  TokenIds ids;
  ids.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty()) ids.emplace(tokens[id], static_cast<int32_t>(id));
  }
  return ids;
}

std::vector<BpeMerge> merges_by_id(const std::vector<std::string>& tokens) {
  const TokenIds ids = token_ids(tokens);
  std::vector<BpeMerge> merges;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view token = tokens[id];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(token.substr(cut));
      if (right == ids.end()) continue;
      const auto result = static_cast<int32_t>(id);
      merges.push_back({left->second, right->second, result, result});
    }
  }
  return merges;
}

std::vector<BpeMerge> one_merge_per_token(const BpeModel& model) {
  bool listed = true;  // ranks are places in the list
  for (std::size_t i = 0; i < model.merges.size(); ++i)
    listed = listed && model.merges[i].rank == static_cast<int32_t>(i);
  if (listed) return model.merges;
  std::array<int32_t, 256> byte_id{};
  for (std::size_t id = 0; id < model.tokens.size(); ++id) {
    if (model.tokens[id].size() == 1)
      byte_id[static_cast<unsigned char>(model.tokens[id][0])] = static_cast<int32_t>(id);
  }
  const BpeMerger merger(model.merges);
  std::vector<BpeMerge> chosen;
  std::vector<int32_t> symbols;
  int32_t last = -1;
  for (const BpeMerge& m : model.merges) {
    if (m.result == last) continue;
    last = m.result;
    symbols.clear();
    for (const char c : model.tokens[static_cast<std::size_t>(m.result)])
      symbols.push_back(byte_id[static_cast<unsigned char>(c)]);
    merger.merge(symbols, m.rank);
    if (symbols.size() == 2)
      chosen.push_back({symbols[0], symbols[1], m.result, static_cast<int32_t>(chosen.size())});
  }
  return chosen;
}

}  // namespace kiln
