#include "data/bpe_tokenizer.h"

#include <array>
#include <optional>

#include "base/error.h"
#include "data/bpe_merger.h"
#include "data/word_table.h"

namespace kiln {
namespace {

constexpr std::size_t kLongestKept = 64;                 // bytes of a word worth remembering
constexpr std::size_t kMostKept = std::size_t{1} << 18;  // words; then all are forgotten
constexpr std::size_t kBlock = 64 * 1024;                // text split at a time, where it can be cut

struct BpeScratch final : Tokenizer::Scratch {
  WordTable words;
  struct Ids {
    uint32_t begin, count;
  };
  std::vector<Ids> ids_of_word;  // by the word's number
  std::vector<int32_t> ids;      // all of them, one after the other
  std::vector<std::string_view> split;
  std::vector<int32_t> symbols;

  void forget() {
    words.clear();
    ids_of_word.clear();
    ids.clear();
  }
};

class BpeTokenizerImpl final : public BpeTokenizer {
 public:
  explicit BpeTokenizerImpl(BpeModel m) : BpeTokenizer(std::move(m)), merger_(model().merges) {
    const auto& tokens = model().tokens;
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      if (tokens[id].size() == 1)
        byte_id_[static_cast<unsigned char>(tokens[id][0])] = static_cast<int32_t>(id);
    }
    if (model().whole_words_first) whole_words_ = token_ids(tokens);
    bytes_of_id_.assign(static_cast<std::size_t>(model().vocab_size()), {});
    for (std::size_t id = 0; id < tokens.size(); ++id) bytes_of_id_[id] = tokens[id];
    for (const SpecialToken& t : specials().all()) bytes_of_id_[static_cast<std::size_t>(t.id)] = t.text;
    fingerprint_ = vocabulary_fingerprint(bytes_of_id_);
  }

  std::string_view kind() const override { return "bpe"; }
  int32_t vocab_size() const override { return static_cast<int32_t>(bytes_of_id_.size()); }
  std::string fingerprint() const override { return fingerprint_; }
  std::unique_ptr<Scratch> make_scratch() const override { return std::make_unique<BpeScratch>(); }

  std::string_view bytes_of(int32_t id) const override {
    if (id < 0 || id >= vocab_size() || bytes_of_id_[static_cast<std::size_t>(id)].empty())
      throw Error(cat("token ", id, " is not in the vocabulary of ", vocab_size()));
    return bytes_of_id_[static_cast<std::size_t>(id)];
  }

  std::size_t find_cut(std::string_view text, std::size_t from) const override {
    return model().splitter->find_cut(text, from);
  }

  void encode_plain(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const override {
    auto& s = static_cast<BpeScratch&>(scratch);
    while (!text.empty()) {
      const std::size_t size = text.size() <= kBlock ? text.size() : find_cut(text, kBlock);
      s.split.clear();
      model().splitter->split(text.substr(0, size), s.split);
      for (const std::string_view word : s.split) encode_word(word, s, ids);
      text.remove_prefix(size);
    }
  }

 private:
  void encode_word(std::string_view word, BpeScratch& s, std::vector<int32_t>& ids) const {
    if (word.size() > kLongestKept) {
      merge_word(word, s.symbols);
      ids.insert(ids.end(), s.symbols.begin(), s.symbols.end());
      return;
    }
    if (s.words.size() >= kMostKept) s.forget();
    const auto [index, fresh] = s.words.insert(word);
    if (fresh) {
      merge_word(word, s.symbols);
      s.ids_of_word.push_back({static_cast<uint32_t>(s.ids.size()), static_cast<uint32_t>(s.symbols.size())});
      s.ids.insert(s.ids.end(), s.symbols.begin(), s.symbols.end());
    }
    const BpeScratch::Ids& known = s.ids_of_word[index];
    const int32_t* first = s.ids.data() + known.begin;
    ids.insert(ids.end(), first, first + known.count);
  }

  void merge_word(std::string_view word, std::vector<int32_t>& symbols) const {
    symbols.clear();
    if (model().whole_words_first) {
      if (const auto found = whole_words_.find(word); found != whole_words_.end()) {
        symbols.push_back(found->second);
        return;
      }
    }
    for (const char c : word) symbols.push_back(byte_id_[static_cast<unsigned char>(c)]);
    merger_.merge(symbols);
  }

  BpeMerger merger_;
  std::array<int32_t, 256> byte_id_{};
  TokenIds whole_words_;
  std::vector<std::string_view> bytes_of_id_;
  std::string fingerprint_;
};

}  // namespace

std::shared_ptr<const BpeTokenizer> make_bpe_tokenizer(BpeModel model) {
  return std::make_shared<BpeTokenizerImpl>(std::move(model));
}

}  // namespace kiln
