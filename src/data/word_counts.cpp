#include "data/word_counts.h"

#include <algorithm>

#include "base/error.h"
#include "data/text_pieces.h"

namespace kiln {
namespace {

constexpr std::size_t kPieceBytes = 256 * 1024;
constexpr std::size_t kPiecesAtOnce = 32;

}  // namespace

struct WordCounts::Part {
  WordTable words;
  std::vector<int64_t> counts;
  std::vector<std::string_view> split;

  void count(std::string_view word, int64_t times) {
    const auto [index, fresh] = words.insert(word);
    if (fresh) counts.push_back(0);
    counts[index] += times;
  }
};

WordCounts::WordCounts(std::shared_ptr<const Splitter> splitter, const SpecialTokens& specials)
    : splitter_(std::move(splitter)), specials_(specials) {}
WordCounts::~WordCounts() = default;

void WordCounts::add(std::string_view text, ThreadPool& pool,
                     const std::function<void(std::size_t)>& progress) {
  TextPieces pieces(
      text, &specials_, [this](std::string_view t, std::size_t from) { return splitter_->find_cut(t, from); },
      kPieceBytes);
  std::vector<std::string_view> batch;
  std::size_t done = 0;
  const auto work = [&] {
    pool.parallel_for(static_cast<int64_t>(batch.size()), 1, [&](int64_t begin, int64_t end) {
      std::unique_ptr<Part> part = parts_.take([] { return std::make_unique<Part>(); });
      for (int64_t i = begin; i < end; ++i) {
        part->split.clear();
        splitter_->split(batch[static_cast<std::size_t>(i)], part->split);
        for (const std::string_view word : part->split) part->count(word, 1);
      }
      parts_.give_back(std::move(part));
    });
    batch.clear();
    if (progress) progress(done);
  };
  while (const auto piece = pieces.next()) {
    done += piece->text.size();
    if (piece->special == nullptr) batch.push_back(piece->text);
    if (batch.size() == kPiecesAtOnce) work();
  }
  work();
}

std::vector<WordCounts::Counted> WordCounts::all() const {
  std::vector<Counted> list;
  for (const auto& part : parts_.idle()) {
    for (std::size_t i = 0; i < part->words.size(); ++i) list.push_back({part->words[i], part->counts[i]});
  }
  std::sort(list.begin(), list.end(), [](const Counted& a, const Counted& b) { return a.word < b.word; });
  std::size_t kept = 0;
  for (const Counted& c : list) {
    if (kept > 0 && list[kept - 1].word == c.word) {
      list[kept - 1].count += c.count;
    } else {
      list[kept++] = c;
    }
  }
  list.resize(kept);
  return list;
}

}  // namespace kiln
