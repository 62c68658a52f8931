#include "data/hf_tokenizer.h"

#include <vector>

#include "base/error.h"
#include "base/json_reader.h"
#include "data/byte_level.h"
#include "data/vocab_merges.h"

namespace kiln {
namespace {

constexpr std::string_view kOnlyByteLevel = "kiln reads byte-level BPE tokenizers only";

[[noreturn]] void refuse(const JsonValue& at, std::string_view what) {
  at.fail(cat(what, " is not supported"), std::string(kOnlyByteLevel));
}

std::string type_of(const JsonValue& part) { return part.at("type").string(); }

// Fails unless the flag is absent, null or false.
void refuse_flag(const JsonValue& part, std::string_view name) {
  if (part.has(name) && part.at(name).boolean()) refuse(part.at(name), "true");
}

SpecialTokens read_added_tokens(const JsonValue& root) {
  std::vector<SpecialToken> tokens;
  if (!root.has("added_tokens")) return {};
  const JsonValue list = root.at("added_tokens");
  constexpr std::size_t kMost = 100'000;
  if (list.array().size() > kMost) list.fail(cat("has ", list.array().size(), " entries; at most ", kMost));
  for (std::size_t i = 0; i < list.array().size(); ++i) {
    const JsonValue t = list.at(i);
    for (std::string_view flag : {"single_word", "lstrip", "rstrip"}) refuse_flag(t, flag);
    tokens.push_back({t.at("content").string(),
                      static_cast<int32_t>(t.at("id").unsigned_integer(BpeModel::kMostTokens - 1))});
    if (tokens.back().text.empty()) t.fail("is an empty token");
  }
  return SpecialTokens(std::move(tokens));
}

std::shared_ptr<const Splitter> read_split(const JsonValue& split) {
  const JsonValue pattern = split.at("pattern");
  if (!pattern.has("Regex")) refuse(pattern, "a Split by anything but a Regex");
  const std::string regex = pattern.at("Regex").string();
  const std::string behaviour = split.at("behavior").string();
  const bool invert = split.has("invert") && split.at("invert").boolean();
  bool known = false;  // such a pattern matches all of a text, so that nothing can be removed
  for (const SplitPattern& p : split_patterns()) known = known || p.regex == regex;
  if (!(behaviour == "Isolated" && !invert) && !(known && behaviour == "Removed" && invert))
    refuse(split.at("behavior"), cat("'", behaviour, "'", invert ? " with invert" : ""));
  return make_splitter_for_regex(regex);
}

// ByteLevel, or a Sequence of Split and ByteLevel.
std::shared_ptr<const Splitter> read_pre_tokenizer(const JsonValue& root) {
  const JsonValue top = root.at("pre_tokenizer");
  if (top.is_null()) refuse(top, "no pre-tokenizer");
  std::vector<JsonValue> steps;
  if (type_of(top) == "Sequence") {
    const JsonValue list = top.at("pretokenizers");
    for (std::size_t i = 0; i < list.array().size(); ++i) steps.push_back(list.at(i));
  } else {
    steps.push_back(top);
  }
  std::shared_ptr<const Splitter> splitter;
  bool byte_level = false;
  for (const JsonValue& step : steps) {
    const std::string type = type_of(step);
    if (byte_level) refuse(step, cat("pre-tokenizer '", type, "' after ByteLevel"));
    if (type == "Split") {
      if (splitter) refuse(step, "a second Split");
      splitter = read_split(step);
    } else if (type == "ByteLevel") {
      byte_level = true;
      refuse_flag(step, "add_prefix_space");
      const bool use_regex = !step.has("use_regex") || step.at("use_regex").boolean();
      if (use_regex && splitter) refuse(step, "ByteLevel's own pattern after a Split");
      if (use_regex) splitter = make_splitter("gpt2");
    } else {
      refuse(step, cat("pre-tokenizer '", type, "'"));
    }
  }
  if (!byte_level || !splitter) refuse(top, "a pre-tokenizer without ByteLevel and a pattern");
  return splitter;
}

void check_post_processor(const JsonValue& part) {
  if (part.is_null()) return;
  const std::string type = type_of(part);
  if (type == "Sequence") {
    const JsonValue list = part.at("processors");
    for (std::size_t i = 0; i < list.array().size(); ++i) check_post_processor(list.at(i));
  } else if (type != "ByteLevel" && type != "TemplateProcessing") {
    refuse(part, cat("post-processor '", type, "'"));
  }
}

void check_around(const JsonValue& root) {
  for (std::string_view name : {"normalizer"}) {
    const JsonValue part = root.get(name);
    if (!part.is_null()) refuse(part, cat("normalizer '", type_of(part), "'"));
  }
  const JsonValue decoder = root.get("decoder");
  if (!decoder.is_null() && type_of(decoder) != "ByteLevel") refuse(decoder, cat("'", type_of(decoder), "'"));
  check_post_processor(root.get("post_processor"));
}

void check_model_options(const JsonValue& bpe) {
  if (bpe.has("type") && type_of(bpe) != "BPE") refuse(bpe.at("type"), cat("'", type_of(bpe), "'"));
  if (bpe.has("dropout") && bpe.at("dropout").number() != 0)
    refuse(bpe.at("dropout"), "dropping merges at random");
  for (std::string_view name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (bpe.has(name) && !bpe.at(name).string().empty())
      refuse(bpe.at(name), cat("'", bpe.at(name).string(), "'"));
  }
  // unk_token and fuse_unk are about bytes without a token, which check() rules out.
  refuse_flag(bpe, "byte_fallback");
}

}  // namespace

BpeModel parse_hf_tokenizer(std::string_view json_text, std::string_view source) {
  const Json document = parse_json(json_text, {}, source);
  const JsonValue root(document, source);
  const JsonValue bpe = root.at("model");
  check_model_options(bpe);
  check_around(root);

  BpeModel model;
  try {
    model.specials = read_added_tokens(root);
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with(source)) throw;
    throw Error(cat(source, ": ", error.what()));
  }
  const JsonValue vocab = bpe.at("vocab");
  read_vocab(vocab, model.specials, model);
  const uint64_t most_id = 4 * (vocab.object().size() + model.specials.all().size()) + 4096;
  for (const SpecialToken& t : model.specials.all()) {
    if (static_cast<uint64_t>(t.id) > most_id)
      throw Error(
          cat(source, ": added token '", t.text.substr(0, 80), "' has id ", t.id, ", far beyond the others"));
    if (static_cast<std::size_t>(t.id) < model.tokens.size() &&
        !model.tokens[static_cast<std::size_t>(t.id)].empty())
      throw Error(cat(source, ": added token '", t.text.substr(0, 80), "' has id ", t.id,
                      ", which is another token's"));
  }
  const JsonValue merges = bpe.at("merges");
  MergeReader reader(model);
  for (std::size_t i = 0; i < merges.array().size(); ++i) {
    const Json& entry = merges.array()[i];
    const std::string where = cat(source, ": model.merges[", i, "]");
    if (entry.is_string()) {
      const std::string_view line = entry.text();
      const std::size_t space = line.find(' ');
      if (space == std::string_view::npos)
        throw Error(cat(where, ": '", line.substr(0, 80), "' has no space"));
      reader.add(line.substr(0, space), line.substr(space + 1), where);
    } else {
      const JsonValue pair = merges.at(i);
      if (pair.array().size() != 2) pair.fail(cat("has ", pair.array().size(), " parts; expected two"));
      reader.add(pair.at(0).string(), pair.at(1).string(), where);
    }
  }
  model.whole_words_first = bpe.has("ignore_merges") && bpe.at("ignore_merges").boolean();
  model.splitter = read_pre_tokenizer(root);
  model.check(source);
  return model;
}

std::string hf_tokenizer_json(const BpeModel& model) {
  Json added = Json::array();
  for (const SpecialToken& t : model.specials.all()) {
    added.push_back({{"id", t.id},
                     {"content", t.text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const bool gpt2 = model.splitter->regex() == split_patterns().front().regex;
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", gpt2}};
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", model.splitter->regex()}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  Json merges = Json::array();
  for (const BpeMerge& m : one_merge_per_token(model)) {
    // As one string, which every version of `tokenizers` reads; a pair of strings only the newer ones.
    merges.push_back(cat(to_byte_level(model.tokens[static_cast<std::size_t>(m.left)]), " ",
                         to_byte_level(model.tokens[static_cast<std::size_t>(m.right)])));
  }
  const Json page = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added},
                     {"normalizer", nullptr},
                     {"pre_tokenizer",
                      gpt2 ? byte_level : Json{{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
                     {"post_processor", nullptr},
                     {"decoder", byte_level}};
  const Json bpe = {{"type", "BPE"},
                    {"dropout", nullptr},
                    {"unk_token", nullptr},
                    {"continuing_subword_prefix", nullptr},
                    {"end_of_word_suffix", nullptr},
                    {"fuse_unk", false},
                    {"byte_fallback", false},
                    {"ignore_merges", model.whole_words_first}};
  std::string text = page.dump(1), options = bpe.dump();
  text.resize(text.size() - 2);  // "\n}"
  options.pop_back();            // "}"
  return cat(text, ",\n \"model\": ", options, ",\n\"vocab\":", vocab_json(model),
             ",\n\"merges\":", merges.dump(0), "}\n}\n");
}

}  // namespace kiln
