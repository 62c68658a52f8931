#include "data/encode_text.h"

#include "data/text_pieces.h"

namespace kiln {
namespace {

constexpr std::size_t kPieceBytes = 128 * 1024;
constexpr std::size_t kBatchBytes = std::size_t{8} << 20;  // encoded between two calls of the sink
constexpr std::size_t kBatchPieces = 4096;                 // texts of nothing but special tokens

}  // namespace

void TextEncoder::encode(std::string_view text, SpecialText special, const Sink& sink) {
  TextPieces pieces(
      text, special == SpecialText::recognise ? &tokenizer_.specials() : nullptr,
      [this](std::string_view t, std::size_t from) { return tokenizer_.find_cut(t, from); }, kPieceBytes);
  std::vector<TextPiece> batch;
  std::vector<std::vector<int32_t>> ids;
  std::size_t bytes = 0;
  const auto work = [&] {
    if (ids.size() < batch.size()) ids.resize(batch.size());
    pool_.parallel_for(static_cast<int64_t>(batch.size()), 1, [&](int64_t begin, int64_t end) {
      auto scratch = scratch_.take([&] { return tokenizer_.make_scratch(); });
      for (int64_t k = begin; k < end; ++k) {
        const auto i = static_cast<std::size_t>(k);
        ids[i].clear();
        if (batch[i].special != nullptr) {
          ids[i].push_back(batch[i].special->id);
        } else {
          tokenizer_.encode_plain(batch[i].text, *scratch, ids[i]);
        }
      }
      scratch_.give_back(std::move(scratch));
    });
    for (std::size_t i = 0; i < batch.size(); ++i) sink(ids[i], batch[i].text.size());
    batch.clear();
    bytes = 0;
  };
  while (const auto piece = pieces.next()) {
    batch.push_back(*piece);
    bytes += piece->text.size();
    if (bytes >= kBatchBytes || batch.size() >= kBatchPieces) work();
  }
  work();
}

std::vector<int32_t> encode_text(const Tokenizer& tokenizer, std::string_view text, SpecialText special,
                                 ThreadPool& pool) {
  std::vector<int32_t> all;
  TextEncoder(tokenizer, pool).encode(text, special, [&](std::span<const int32_t> ids, std::size_t) {
    all.insert(all.end(), ids.begin(), ids.end());
  });
  return all;
}

}  // namespace kiln
