#include "data/tokenize.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "data/bpe_trainer.h"
#include "data/encode_text.h"
#include "data/load_tokenizer.h"
#include "data/token_folder.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

std::string rate(std::size_t bytes, const Stopwatch& watch) {
  return fmt::format("{:.1f} MB/s", static_cast<double>(bytes) / 1e6 / std::max(watch.seconds(), 1e-6));
}

// Refuses a folder that already holds tokens, or clears them away; nothing else in it is touched.
void prepare_folder(const TokenizeRequest& request) {
  std::error_code error;
  fs::create_directories(request.out, error);
  if (error) throw Error(fmt::format("cannot make the folder {}: {}", request.out, error.message()));
  const fs::path manifest = fs::path(request.out) / "dataset.json";
  if (!fs::exists(manifest, error)) return;
  if (!request.overwrite)
    throw Error(fmt::format("{} already holds tokens", request.out),
                "name another folder with --out, or replace them with --overwrite");
  const TokenFolder old = read_token_folder(request.out);
  fs::remove(manifest);  // first: from here on the folder is not whole
  for (const auto* list : {&old.train, &old.val}) {
    for (const ShardFile& f : *list) fs::remove(fs::path(request.out) / f.name);
  }
}

BpeTrainOptions train_options(const TokenizeRequest& request) {
  BpeTrainOptions options;
  options.vocab_size = *request.train_bpe;
  if (!request.specials.empty()) options.specials = request.specials;
  check_train_options(options);
  return options;
}

std::shared_ptr<const Tokenizer> train(BpeTrainOptions options,
                                       const std::shared_ptr<const Splitter>& splitter, const TextSplit& text,
                                       ThreadPool& pool, TokenizeReport& report,
                                       const TokenizeProgress& progress) {
  WordCounts counts(splitter, SpecialTokens::numbered(options.specials, 0));

  std::size_t total = 0, done = 0;
  for (const TextRange& r : text.train) total += r.end - r.begin;
  const Stopwatch counting;
  for (const TextRange& r : text.train) {
    const RangeText part(r);
    counts.add(part.text(), pool, [&](std::size_t bytes) {
      progress("counting words", static_cast<double>(done + bytes) / static_cast<double>(total),
               rate(done + bytes, counting));
    });
    done += r.end - r.begin;
  }
  report.count_seconds = counting.seconds();

  const Stopwatch merging;
  options.progress = [&](int32_t tokens) {
    progress("training BPE", static_cast<double>(tokens) / options.vocab_size,
             fmt::format("{} of {} tokens", tokens, options.vocab_size));
  };
  BpeModel model = train_bpe(counts, splitter, options);
  report.train_seconds = merging.seconds();
  return make_bpe_tokenizer(std::move(model));
}

// Every range is a document, closed by the end-of-text token where the tokenizer has one.
class PartWriter {
 public:
  PartWriter(const TokenizeRequest& request, const Tokenizer& tokenizer, std::string prefix)
      : end_(tokenizer.specials().end_of_text()),
        writer_(request.out, std::move(prefix), tokenizer.vocab_size(), request.shard_tokens) {}

  template <class Done>
  void add(const TextRange& range, TextEncoder& encoder, const Done& done) {
    const RangeText part(range);
    encoder.encode(part.text(), SpecialText::recognise, [&](std::span<const int32_t> ids, std::size_t bytes) {
      write(ids);
      done(bytes);
    });
    if (end_) write({&*end_, 1});
  }
  int64_t tokens() const { return writer_.tokens(); }
  double seconds() const { return seconds_; }  // spent writing
  std::vector<ShardFile> finish() {
    const Stopwatch watch;
    std::vector<ShardFile> files = writer_.finish();
    seconds_ += watch.seconds();
    return files;
  }

 private:
  void write(std::span<const int32_t> ids) {
    const Stopwatch watch;
    writer_.append(ids);
    seconds_ += watch.seconds();
  }

  std::optional<int32_t> end_;
  ShardWriter writer_;
  double seconds_ = 0;
};

}  // namespace

TokenizeReport tokenize(const TokenizeRequest& request, const TokenizeProgress& progress) {
  TokenizeReport report;
  if (is_token_folder(request.text))
    throw Error(cat(request.text, " holds tokens already"),
                "give the text itself; kiln train reads tokens as they are", ErrorKind::usage);
  const TextSource source(request.text);
  const TextSplit text = split_text(source, request.validation);
  ThreadPool pool(request.threads > 0 ? request.threads : ThreadPool::available_threads());
  // What can be wrong with the tokenizer shows before the folder is touched.
  std::shared_ptr<const Tokenizer> tokenizer;
  BpeTrainOptions options;
  std::shared_ptr<const Splitter> splitter;
  if (!request.train_bpe) {
    tokenizer = load_tokenizer(request.tokenizer, request.pattern);
  } else {
    options = train_options(request);
    splitter = make_splitter(request.pattern.empty() ? "gpt2" : request.pattern);
  }
  prepare_folder(request);
  if (!tokenizer) tokenizer = train(options, splitter, text, pool, report, progress);

  const Stopwatch encoding;
  TextEncoder encoder(*tokenizer, pool);
  PartWriter train_part(request, *tokenizer, "train"), val_part(request, *tokenizer, "val");
  std::size_t done = 0;
  const auto advance = [&](std::size_t bytes) {
    done += bytes;
    progress("encoding", static_cast<double>(done) / static_cast<double>(source.bytes()),
             rate(done, encoding));
  };
  for (const TextRange& r : text.train) train_part.add(r, encoder, advance);
  for (const TextRange& r : text.validation) val_part.add(r, encoder, advance);
  report.train = train_part.finish();
  report.val = val_part.finish();
  report.write_seconds = train_part.seconds() + val_part.seconds();
  report.encode_seconds = encoding.seconds() - report.write_seconds;

  save_tokenizer(*tokenizer, request.out);
  report.out = request.out;
  report.files = source.files().size();
  report.text_bytes = source.bytes();
  report.skipped = source.skipped();
  report.tokenizer = tokenizer->kind();
  report.fingerprint = tokenizer->fingerprint();
  report.vocab_size = tokenizer->vocab_size();
  report.vocab_wanted = request.train_bpe.value_or(0);
  if (const auto* bpe = dynamic_cast<const BpeTokenizer*>(tokenizer.get()))
    report.merges = bpe->model().merges.size();
  report.threads = pool.threads();
  report.train_tokens = train_part.tokens();
  report.val_tokens = val_part.tokens();
  write_dataset_json(request.out, {.tokenizer = report.tokenizer,
                                   .fingerprint = report.fingerprint,
                                   .vocab_size = report.vocab_size,
                                   .train = report.train,
                                   .val = report.val});
  return report;
}

}  // namespace kiln
