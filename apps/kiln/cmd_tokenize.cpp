// kiln tokenize: text to token shards; trains a BPE on the way where asked to.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "data/bpe_model.h"
#include "data/tokenize.h"
#include "kiln/command.h"
#include "kiln/console/progress.h"

namespace kiln::cli {
namespace {

void check(const TokenizeRequest& r, const Options& options) {
  if (r.text.empty())
    throw Error("kiln tokenize needs --text", "give a text file or a folder of them", ErrorKind::usage);
  if (r.train_bpe && !options.find("--tokenizer")->given().empty())
    throw Error("--tokenizer and --train-bpe are both given; expected one of them", {}, ErrorKind::usage);
  if (!r.train_bpe && !r.specials.empty())
    throw Error("--special is given without --train-bpe; a tokenizer's file says what its special tokens are",
                {}, ErrorKind::usage);
}

}  // namespace

void add_tokenize(Command& c, const CommonOptions& common) {
  auto request = std::make_shared<TokenizeRequest>();
  TokenizeRequest& r = *request;
  c.opt("--text", r.text, "text file, or folder of text files (UTF-8)").value("PATH");
  c.opt("--tokenizer", r.tokenizer,
        "byte, or a tokenizer.json, vocab.json or tiktoken file, or a folder with one")
      .value("PATH");
  c.opt("--train-bpe", r.train_bpe, between<int32_t>(257, BpeModel::kMostTokens),
        "vocabulary size of a byte-level BPE, trained on the text first")
      .unset("none");
  c.opt("--pattern", r.pattern, "pre-tokenizer pattern: gpt2, cl100k, o200k or llama3").unset("gpt2");
  c.opt("--special", r.specials, "special tokens of the BPE").value("TEXT").repeat().unset("<|endoftext|>");
  c.opt("--shard-tokens", r.shard_tokens, between<int64_t>(1, ShardWriter::kMostTokens),
        "maximum tokens of a shard");
  c.opt("--val-fraction", r.validation, between(0.0, 0.9), "validation fraction, the end of the text")
      .was("--validation");
  c.opt("--overwrite", r.overwrite, "replace the tokens that --out already holds");
  c.opt("--threads", r.threads, between(0, 1024), "CPU threads").unset("all");
  c.run = [request, &c, &common] {
    check(*request, c.options);
    request->out = common.out_given ? common.out : common.out + "/tokens";
    TokenizeReport report;
    {
      ProgressBar bar;
      report = tokenize(*request, [&](const std::string& what, double fraction, const std::string& detail) {
        bar.show(what, fraction, detail);
      });
    }
    fmt::print("{}", common.json ? tokenize_json(report).dump(2) + "\n" : tokenize_text(report));
  };
}

}  // namespace kiln::cli
