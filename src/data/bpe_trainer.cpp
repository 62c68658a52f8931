// Recounting all pairs for each merge would cost hours. Instead each pair remembers the words it occurs
// in, a merge visits those alone, and the counts are corrected by what changed in them. The most frequent
// pair comes from a heap whose entries may be out of date: counts of old pairs only fall, so an entry that is
// too high is put right when it reaches the top; pairs whose count may have risen are pushed again.
#include "data/bpe_trainer.h"

#include <algorithm>
#include <queue>

#include "base/error.h"
#include "data/pair_map.h"

namespace kiln {
namespace {

class Trainer {
 public:
  Trainer(const std::vector<WordCounts::Counted>& counted, int32_t vocab_size) : vocab_size_(vocab_size) {
    for (int b = 0; b < 256; ++b) add_token(std::string(1, static_cast<char>(b)));
    for (const auto& [word, count] : counted) {
      if (word.size() < 2) continue;  // no pairs in it
      words_.push_back({symbols_.size(), static_cast<uint32_t>(word.size()), count});
      for (const char c : word) symbols_.push_back(static_cast<unsigned char>(c));
    }
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const std::span<int32_t> s = symbols_of(w);
      for (std::size_t i = 0; i + 1 < s.size(); ++i) change(s[i], s[i + 1], words_[w].count, w);
    }
    for (uint32_t p = 0; p < pairs_.size(); ++p) offer(p);
  }

  // False when nothing is left to merge.
  bool step() {
    while (!heap_.empty()) {
      const Candidate top = heap_.top();
      heap_.pop();
      const Pair& p = pairs_[top.pair];
      if (p.count != top.count) {
        offer(top.pair);
      } else if (token(p.left).size() + token(p.right).size() <= BpeModel::kLongestToken) {
        merge(top.pair);
        return true;
      }
    }
    return false;
  }

  bool full() const { return static_cast<int32_t>(tokens_.size()) >= vocab_size_; }
  std::vector<std::string>& tokens() { return tokens_; }
  std::vector<BpeMerge>& merges() { return merges_; }

 private:
  struct Word {
    std::size_t begin;
    uint32_t length;  // in symbols; shrinks
    int64_t count;
  };
  struct Pair {
    int32_t left, right;
    int64_t count = 0;
    bool listed = false;          // among the merges
    std::vector<uint32_t> words;  // where it is or stood; may name a word twice
  };
  struct Candidate {
    int64_t count;
    uint32_t pair;
  };
  struct Less {
    const Trainer* t;
    bool operator()(const Candidate& a, const Candidate& b) const {
      if (a.count != b.count) return a.count < b.count;
      if (a.pair == b.pair) return false;
      const Pair &p = t->pairs_[a.pair], &q = t->pairs_[b.pair];
      if (p.left != q.left) return t->token(p.left) < t->token(q.left);
      return t->token(p.right) < t->token(q.right);
    }
  };

  const std::string& token(int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }
  std::span<int32_t> symbols_of(uint32_t w) { return {symbols_.data() + words_[w].begin, words_[w].length}; }

  int32_t add_token(const std::string& bytes) {
    const auto [place, fresh] = ids_.try_emplace(bytes, static_cast<int32_t>(tokens_.size()));
    if (fresh) tokens_.push_back(bytes);
    return place->second;
  }

  // Adds `by` to the pair's count. A rise means the pair now is in word `w`.
  uint32_t change(int32_t left, int32_t right, int64_t by, uint32_t w) {
    uint32_t& place = pair_numbers_[pair_key(left, right)];
    if (place == 0) {
      pairs_.push_back({.left = left, .right = right, .words = {}});
      place = static_cast<uint32_t>(pairs_.size());
    }
    Pair& p = pairs_[place - 1];
    p.count += by;
    if (by > 0 && (p.words.empty() || p.words.back() != w)) p.words.push_back(w);
    return place - 1;
  }

  void offer(uint32_t pair) {
    if (pairs_[pair].count > 0) heap_.push({pairs_[pair].count, pair});
  }

  void merge(uint32_t number) {
    const int32_t left = pairs_[number].left, right = pairs_[number].right;
    const int32_t result = add_token(token(left) + token(right));
    if (!pairs_[number].listed) {
      pairs_[number].listed = true;
      merges_.push_back({left, right, result, static_cast<int32_t>(merges_.size())});
    }
    const std::vector<uint32_t> where = std::move(pairs_[number].words);
    pairs_[number].words.clear();
    risen_.clear();
    for (const uint32_t w : where) merge_in(w, left, right, result);
    std::sort(risen_.begin(), risen_.end());
    risen_.erase(std::unique(risen_.begin(), risen_.end()), risen_.end());
    for (const uint32_t p : risen_) offer(p);
  }

  void merge_in(uint32_t w, int32_t left, int32_t right, int32_t result) {
    const std::span<int32_t> s = symbols_of(w);
    std::size_t first = 0;
    while (first + 1 < s.size() && !(s[first] == left && s[first + 1] == right)) ++first;
    if (first + 1 >= s.size()) return;  // merged away earlier
    const int64_t count = words_[w].count;

    fresh_.clear();                           // symbols from `first` on, merged
    std::size_t i = first, last_end = first;  // last_end: the old symbols from there on stay as they are
    while (i < s.size()) {
      if (i + 1 < s.size() && s[i] == left && s[i + 1] == right) {
        fresh_.push_back(result);
        i += 2;
        last_end = i;
      } else {
        fresh_.push_back(s[i++]);
      }
    }
    // Pairs before `first - 1` and after `last_end` are as they were; those between are removed and
    // added again.
    const std::size_t before = first == 0 ? 0 : first - 1;
    const std::size_t after = std::min(last_end + 1, s.size());
    for (std::size_t k = before; k + 1 < after; ++k) change(s[k], s[k + 1], -count, w);
    const std::size_t shrunk = s.size() - first - fresh_.size();
    std::copy(fresh_.begin(), fresh_.end(), s.begin() + static_cast<std::ptrdiff_t>(first));
    words_[w].length -= static_cast<uint32_t>(shrunk);
    const std::size_t new_after = after - shrunk;
    for (std::size_t k = before; k + 1 < new_after; ++k) {
      const uint32_t p = change(s[k], s[k + 1], count, w);
      if (s[k] == result || s[k + 1] == result) risen_.push_back(p);
    }
  }

  int32_t vocab_size_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<BpeMerge> merges_;
  std::vector<int32_t> symbols_;  // of all words, one after the other
  std::vector<Word> words_;
  std::vector<Pair> pairs_;
  PairMap<uint32_t> pair_numbers_;  // place in pairs_ + 1
  std::priority_queue<Candidate, std::vector<Candidate>, Less> heap_{Less{this}};
  std::vector<int32_t> fresh_;
  std::vector<uint32_t> risen_;
};

}  // namespace

void check_train_options(const BpeTrainOptions& options) {
  const int64_t least = 256 + static_cast<int64_t>(options.specials.size());
  if (options.vocab_size < least || options.vocab_size > BpeModel::kMostTokens) {
    throw Error(cat("a vocabulary of ", options.vocab_size, "; expected ", least, " (256 bytes and ",
                    options.specials.size(), " special tokens) to ", BpeModel::kMostTokens),
                {}, ErrorKind::usage);
  }
}

BpeModel train_bpe(const WordCounts& counts, std::shared_ptr<const Splitter> splitter,
                   const BpeTrainOptions& options) {
  check_train_options(options);
  const auto specials = static_cast<int32_t>(options.specials.size());
  Trainer trainer(counts.all(), options.vocab_size - specials);
  while (!trainer.full() && trainer.step()) {
    if (options.progress && trainer.tokens().size() % 64 == 0)
      options.progress(static_cast<int32_t>(trainer.tokens().size()) + specials);
  }
  BpeModel model;
  model.tokens = std::move(trainer.tokens());
  model.merges = std::move(trainer.merges());
  model.splitter = std::move(splitter);
  model.specials = SpecialTokens::numbered(options.specials, static_cast<int32_t>(model.tokens.size()));
  model.check("the trained BPE");
  return model;
}

}  // namespace kiln
