// kiln tokenize: text to token shards; trains a BPE on the way where asked to.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "data/bpe_model.h"
#include "kiln/cmd.h"
#include "base/parse_number.h"
#include "kiln/console/progress.h"
#include "data/tokenize.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

// As typed; CLI11's own conversions do not say what was expected.
struct TokenizeOptions {
  TokenizeRequest request;
  std::string train_bpe, shard_tokens, validation, threads, tokenizer;
};

TokenizeRequest read_options(const TokenizeOptions& options, const CommonOptions& common, bool out_given) {
  TokenizeRequest r = options.request;
  if (r.text.empty())
    throw Error("kiln tokenize needs --text", "give a text file or a folder of them", ErrorKind::usage);
  if (!options.train_bpe.empty()) {
    if (!options.tokenizer.empty())
      throw Error("--tokenizer and --train-bpe are both given; expected one of them", {}, ErrorKind::usage);
    r.train_bpe = parse_number<int32_t>("--train-bpe", options.train_bpe, 257, BpeModel::kMostTokens);
  } else if (!r.specials.empty()) {
    throw Error("--special is given without --train-bpe; a tokenizer's file says what its special tokens are",
                {}, ErrorKind::usage);
  }
  if (!options.tokenizer.empty()) r.tokenizer = options.tokenizer;
  if (!options.shard_tokens.empty())
    r.shard_tokens =
        parse_number<int64_t>("--shard-tokens", options.shard_tokens, 1, ShardWriter::kMostTokens);
  if (!options.validation.empty())
    r.validation = parse_number<double>("--validation", options.validation, 0.0, 0.9);
  if (!options.threads.empty()) r.threads = parse_number<int>("--threads", options.threads, 1, 1024);
  r.out = out_given ? common.out : common.out + "/tokens";
  return r;
}

ordered_json files_json(const std::vector<ShardFile>& files) {
  auto list = ordered_json::array();
  for (const ShardFile& f : files) list.push_back({{"file", f.name}, {"tokens", f.tokens}});
  return list;
}

std::string to_json(const TokenizeReport& r) {
  auto skipped = ordered_json::array();
  for (const auto& s : r.skipped) skipped.push_back({{"path", s.path}, {"reason", s.reason}});
  ordered_json trained = nullptr;
  if (r.vocab_wanted > 0) {
    trained = {{"vocab_size", r.vocab_size},
               {"vocab_wanted", r.vocab_wanted},
               {"merges", r.merges},
               {"count_seconds", r.count_seconds},
               {"merge_seconds", r.train_seconds},
               {"seconds", r.count_seconds + r.train_seconds}};
  }
  const ordered_json page = {{"out", r.out},
                             {"text_files", r.files},
                             {"text_bytes", r.text_bytes},
                             {"tokenizer", r.tokenizer},
                             {"fingerprint", r.fingerprint},
                             {"vocab_size", r.vocab_size},
                             {"tokens", r.tokens()},
                             {"train_tokens", r.train_tokens},
                             {"val_tokens", r.val_tokens},
                             {"bytes_per_token", r.bytes_per_token()},
                             {"trained_bpe", trained},
                             {"encode_seconds", r.encode_seconds},
                             {"write_seconds", r.write_seconds},
                             {"encode_mb_per_s", r.encode_mb_per_second()},
                             {"threads", r.threads},
                             {"train", files_json(r.train)},
                             {"val", files_json(r.val)},
                             {"skipped", skipped}};
  return page.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string to_text(const TokenizeReport& r) {
  std::string text =
      fmt::format("text       {} in {} file(s){}\n", human({r.text_bytes}), r.files,
                  r.skipped.empty() ? "" : fmt::format(", {} not text and passed over", r.skipped.size()));
  for (std::size_t i = 0; i < r.skipped.size() && i < 3; ++i)
    text += fmt::format("           {}: {}\n", r.skipped[i].path, r.skipped[i].reason);
  if (r.vocab_wanted > 0) {
    text += fmt::format("trained    {} merges in {:.2f} s (words {:.2f} s, merges {:.2f} s)\n", r.merges,
                        r.count_seconds + r.train_seconds, r.count_seconds, r.train_seconds);
    if (r.vocab_size < r.vocab_wanted)
      text += fmt::format("           the text has no more pairs to merge: {} tokens of {} wanted\n",
                          r.vocab_size, r.vocab_wanted);
  }
  text += fmt::format("tokenizer  {}, vocabulary {}, {}\n", r.tokenizer, r.vocab_size, r.fingerprint);
  text += fmt::format("tokens     {} ({} to train, {} to validate), {:.2f} bytes a token\n", r.tokens(),
                      r.train_tokens, r.val_tokens, r.bytes_per_token());
  text += fmt::format("encoded    in {:.2f} s, {:.1f} MB/s with {} thread(s); writing took {:.2f} s\n",
                      r.encode_seconds, r.encode_mb_per_second(), r.threads, r.write_seconds);
  text += fmt::format("written    {}: {} shard(s), tokenizer.json, dataset.json\n", r.out,
                      r.train.size() + r.val.size());
  return text;
}

}  // namespace

CommandBody add_tokenize(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<TokenizeOptions>();
  TokenizeRequest& r = options->request;
  app.add_option("--text", r.text, "A text file, or a folder of them (UTF-8)")->type_name("PATH");
  app.add_option(
         "--tokenizer", options->tokenizer,
         "byte, or a tokenizer.json, vocab.json or tiktoken file, or a folder with one (default byte)")
      ->type_name("PATH");
  app.add_option("--train-bpe", options->train_bpe, "Train a byte-level BPE of this vocabulary on the text")
      ->type_name("N");
  app.add_option("--pattern", r.pattern, "How words are split: gpt2, cl100k, o200k or llama3 (default gpt2)")
      ->type_name("NAME");
  app.add_option("--special", r.specials, "Special tokens of the BPE (default <|endoftext|>)")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option("--shard-tokens", options->shard_tokens, "Tokens of a shard at most (default 100000000)")
      ->type_name("N");
  app.add_option("--validation", options->validation, "Part of the text held out, its end (default 0.05)")
      ->type_name("X");
  app.add_flag("--overwrite", r.overwrite, "Replace the tokens --out already holds");
  app.add_option("--threads", options->threads, "Of the CPU (default all)")->type_name("N");
  const CLI::Option* out = app.get_option("--out");
  return [options, out, &common] {
    const TokenizeRequest request = read_options(*options, common, out->count() > 0);
    TokenizeReport report;
    {
      ProgressBar bar;
      report = tokenize(request, [&](const std::string& what, double fraction, const std::string& detail) {
        bar.show(what, fraction, detail);
      });
    }
    std::fputs((common.json ? to_json(report) : to_text(report)).c_str(), stdout);
  };
}

}  // namespace kiln::cli
