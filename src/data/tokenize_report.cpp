// What `kiln tokenize` says of what it wrote.
#include <fmt/format.h>

#include "base/units.h"
#include "data/tokenize.h"

namespace kiln {
namespace {

Json files_json(const std::vector<ShardFile>& files) {
  auto list = Json::array();
  for (const ShardFile& f : files) list.push_back({{"file", f.name}, {"tokens", f.tokens}});
  return list;
}

}  // namespace

Json tokenize_json(const TokenizeReport& r) {
  auto skipped = Json::array();
  for (const auto& s : r.skipped) skipped.push_back({{"path", s.path}, {"reason", s.reason}});
  Json trained = nullptr;
  if (r.vocab_wanted > 0) {
    trained = {{"vocab_size", r.vocab_size},
               {"vocab_wanted", r.vocab_wanted},
               {"merges", r.merges},
               {"count_seconds", r.count_seconds},
               {"merge_seconds", r.train_seconds},
               {"seconds", r.count_seconds + r.train_seconds}};
  }
  return {{"command", "tokenize"},
          {"out", r.out},
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
}

std::string tokenize_text(const TokenizeReport& r) {
  std::string text =
      fmt::format("text       {} in {} file(s){}\n", human({r.text_bytes}), r.files,
                  r.skipped.empty() ? "" : fmt::format(", {} skipped: not text", r.skipped.size()));
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

}  // namespace kiln
