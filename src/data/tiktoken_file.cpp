#include "data/tiktoken_file.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "data/base64.h"

namespace kiln {
namespace {

struct Encoding {
  std::string_view pattern;
  SpecialTokens specials;
};

SpecialTokens llama3_specials(int32_t first) {
  const auto reserved = [](int n) { return cat("<|reserved_special_token_", n, "|>"); };
  std::vector<std::string> names = {
      "<|begin_of_text|>", "<|end_of_text|>",     reserved(0),         reserved(1), reserved(2),
      reserved(3),         "<|start_header_id|>", "<|end_header_id|>", reserved(4), "<|eot_id|>"};
  for (int n = 5; n < 251; ++n) names.push_back(reserved(n));
  return SpecialTokens::numbered(names, first);
}

Encoding encoding_of(int32_t tokens) {
  switch (tokens) {
    case 100'256:
      return {"cl100k", SpecialTokens({{std::string(kEndOfText), 100'257},
                                       {"<|fim_prefix|>", 100'258},
                                       {"<|fim_middle|>", 100'259},
                                       {"<|fim_suffix|>", 100'260},
                                       {"<|endofprompt|>", 100'276}})};
    case 199'998:
      return {"o200k", SpecialTokens({{std::string(kEndOfText), 199'999}, {"<|endofprompt|>", 200'018}})};
    case 128'000:
      return {"llama3", llama3_specials(128'000)};
    default:
      return {"gpt2", SpecialTokens::numbered({std::string(kEndOfText)}, tokens)};
  }
}

}  // namespace

BpeModel parse_tiktoken(std::string_view text, const TiktokenOptions& options, std::string_view source) {
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  const int64_t most = std::min<int64_t>(BpeModel::kMostTokens, 4 * static_cast<int64_t>(lines) + 4096);
  BpeModel model;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const auto fail = [&](std::string_view what) {
      throw Error(cat(source, " line ", number, ": '", line.substr(0, 80), "' ", what),
                  "a line of a tiktoken file is a token in base64, a space and its rank");
    };
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) fail("has no space");
    const auto bytes = from_base64(line.substr(0, space));
    if (!bytes || bytes->empty()) fail("does not begin with base64");
    const std::string_view digits = line.substr(space + 1);
    int64_t rank = -1;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (error != std::errc{} || stop != digits.data() + digits.size() || rank < 0 || rank >= most)
      fail(cat("does not end with a rank from 0 to ", most - 1));
    const auto id = static_cast<std::size_t>(rank);
    if (model.tokens.size() <= id) model.tokens.resize(id + 1);
    if (!model.tokens[id].empty()) fail("has a rank that came before");
    model.tokens[id] = *bytes;
  }
  const auto count = static_cast<int32_t>(model.tokens.size());
  Encoding encoding = encoding_of(count);
  model.specials = options.specials.empty() ? std::move(encoding.specials)
                                            : SpecialTokens::numbered(options.specials, count);
  model.splitter =
      make_splitter(options.pattern.empty() ? encoding.pattern : std::string_view(options.pattern));
  model.whole_words_first = true;
  model.check(source);  // before the pairs are listed: it bounds the tokens' lengths
  model.merges = merges_by_id(model.tokens);
  return model;
}

std::string tiktoken_text(const BpeModel& model) {
  std::string text;
  for (std::size_t id = 0; id < model.tokens.size(); ++id) {
    if (!model.tokens[id].empty()) text += cat(to_base64(model.tokens[id]), " ", id, "\n");
  }
  return text;
}

}  // namespace kiln
