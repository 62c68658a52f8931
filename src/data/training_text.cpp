#include "data/training_text.h"

#include <algorithm>

#include "base/error.h"
#include "data/bpe_trainer.h"
#include "data/builtin_text.h"
#include "data/encode_text.h"
#include "data/load_tokenizer.h"
#include "data/text_source.h"
#include "data/token_files_text.h"
#include "data/token_folder.h"

namespace kiln {
namespace {

std::shared_ptr<const TokenSet> map_shards(const std::string& folder, const std::string& part,
                                           int32_t vocab_size, ThreadPool& pool) {
  std::vector<TokenShard> shards;
  for (const std::string& file : token_files(folder, part)) shards.emplace_back(file);
  return std::make_shared<TokenSet>(std::move(shards), vocab_size, pool);
}

// Whether some shard holds a window and the token behind it.
bool fills_a_window(const TokenSet& tokens, int64_t context) {
  const std::vector<TokenShard>& shards = tokens.shards();
  return std::any_of(shards.begin(), shards.end(), [&](const TokenShard& s) { return s.size() > context; });
}

TrainingText from_shards(const std::string& folder, int64_t context, ThreadPool& pool) {
  const TokenFolder content = read_token_folder(folder);
  TrainingText t;
  t.name = folder;
  t.tokenizer = load_tokenizer(content.tokenizer == "byte" ? "byte" : folder);
  if (t.tokenizer->fingerprint() != content.fingerprint) {
    throw Error(cat(folder, ": the tokenizer there is not the one the tokens were made with (",
                    t.tokenizer->fingerprint(), ", expected ", content.fingerprint, ")"),
                "make the folder again with `kiln tokenize`");
  }
  t.vocab_size = content.vocab_size;
  t.train = map_shards(folder, "train", content.vocab_size, pool);
  if (!content.val.empty()) t.validation = map_shards(folder, "val", content.vocab_size, pool);
  if (t.validation && !fills_a_window(*t.validation, context)) t.validation.reset();
  return t;
}

// Each range is a document: closed by the end-of-text token where there is one, as in a token folder.
std::vector<int32_t> encode_ranges(const std::vector<TextRange>& ranges, const Tokenizer& tokenizer,
                                   ThreadPool& pool) {
  const auto end = tokenizer.specials().end_of_text();
  std::vector<int32_t> ids;
  TextEncoder encoder(tokenizer, pool);
  for (const TextRange& r : ranges) {
    const RangeText part(r);
    encoder.encode(part.text(), SpecialText::recognise, [&](std::span<const int32_t> some, std::size_t) {
      ids.insert(ids.end(), some.begin(), some.end());
    });
    if (end) ids.push_back(*end);
  }
  return ids;
}

BpeTrainOptions bpe_options(const TextOptions& options) {
  BpeTrainOptions bpe;
  bpe.vocab_size = options.train_vocab;
  return bpe;
}

// From the training part alone: the validation part must be as new to the tokenizer as to the model.
std::shared_ptr<const Tokenizer> train_tokenizer(const std::vector<TextRange>& text,
                                                 const BpeTrainOptions& options, ThreadPool& pool) {
  const auto splitter = make_splitter("gpt2");
  WordCounts counts(splitter, SpecialTokens::numbered(options.specials, 0));
  for (const TextRange& r : text) counts.add(RangeText(r).text(), pool);
  return make_bpe_tokenizer(train_bpe(counts, splitter, options));
}

[[noreturn]] void throw_holds_tokens(const std::string& path, const TextOptions& o) {
  throw Error(cat(path, " holds tokens already; no vocabulary of ", o.train_vocab, " can be trained on them"),
              "leave --train-bpe out, or give the text itself", ErrorKind::usage);
}

std::shared_ptr<const TokenSet> hold(std::vector<int32_t> ids, const std::string& name, int32_t vocab_size,
                                     ThreadPool& pool) {
  std::vector<TokenShard> shards;
  shards.emplace_back(std::move(ids), name);
  return std::make_shared<TokenSet>(std::move(shards), vocab_size, pool);
}

}  // namespace

void check_text_options(const TextOptions& o) {
  if (!(o.held_out >= 0 && o.held_out < 1))
    throw Error(
        cat("the validation part of the text is ", o.held_out, "; expected 0 or more and less than 1"), {},
        ErrorKind::usage);
  if (o.train_vocab == 0) return;
  if (o.tokenizer != "byte")
    throw Error(cat("a vocabulary of ", o.train_vocab, " is to be trained, and ", o.tokenizer,
                    " is to be used: only one of them can be"),
                "leave --train-bpe or --tokenizer out", ErrorKind::usage);
  check_train_options(bpe_options(o));
}

TrainingText read_training_text(const std::string& path, const TextOptions& o, ThreadPool& pool) {
  check_text_options(o);
  if (!path.empty() && is_token_folder(path)) {
    if (o.train_vocab > 0) throw_holds_tokens(path, o);
    return from_shards(path, o.context, pool);
  }
  if (!path.empty() && is_token_files(path)) {
    if (o.train_vocab > 0) throw_holds_tokens(path, o);
    return read_token_files(path, o, pool);
  }
  const TextSource source =
      path.empty() ? TextSource::in_memory("kiln's own sources", builtin_text()) : TextSource(path);
  const TextSplit split = split_text(source, o.held_out);
  TrainingText t;
  t.name = path.empty() ? source.files()[0].path : path;
  t.tokenizer = o.train_vocab > 0 ? train_tokenizer(split.train, bpe_options(o), pool)
                                  : load_tokenizer_of(o.model_vocab, o.tokenizer);
  t.vocab_size = t.tokenizer->vocab_size();
  t.text_bytes = source.bytes();
  t.train = hold(encode_ranges(split.train, *t.tokenizer, pool), t.name, t.vocab_size, pool);
  std::vector<int32_t> rest = encode_ranges(split.validation, *t.tokenizer, pool);
  if (static_cast<int64_t>(rest.size()) > o.context)
    t.validation = hold(std::move(rest), cat(t.name, " (validation)"), t.vocab_size, pool);
  return t;
}

EvaluationText read_evaluation_text(const std::string& path,
                                    const std::shared_ptr<const Tokenizer>& tokenizer, ThreadPool& pool) {
  if (is_token_folder(path)) {
    const TrainingText t = from_shards(path, 0, pool);
    if (tokenizer && tokenizer->fingerprint() != t.tokenizer->fingerprint())
      throw Error(cat(path, " was made with another tokenizer than the model's: ", t.tokenizer->fingerprint(),
                      ", expected ", tokenizer->fingerprint()),
                  "give the text itself, or make the tokens with the model's tokenizer");
    return {t.tokenizer, t.validation ? t.validation : t.train};
  }
  if (is_token_files(path)) {  // ids of the model's own vocabulary: others are an error of TokenSet
    const TrainingText t = read_token_files(path, {.held_out = 0}, pool);
    return {tokenizer ? tokenizer : t.tokenizer, t.train};
  }
  if (!tokenizer) throw Error("there is no tokenizer to read the text with");
  const TextSource source(path);
  std::vector<TextRange> all;
  for (const TextFile& f : source.files()) all.push_back({f.path, 0, f.size});
  const int32_t vocab = tokenizer->vocab_size();
  return {tokenizer, hold(encode_ranges(all, *tokenizer, pool), path, vocab, pool)};
}

}  // namespace kiln
