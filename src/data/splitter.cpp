#include "data/splitter.h"

#include <algorithm>

#include "base/error.h"
#include "base/nearest_name.h"
#include "data/unicode_classes.h"
#include "data/utf8.h"

namespace kiln {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Also Llama 3's.
constexpr std::string_view kCl100k =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr SplitPattern kPatterns[] = {
    {"gpt2", kGpt2}, {"cl100k", kCl100k}, {"o200k", kO200k}, {"llama3", kCl100k}};

// Does a letter or number end right before `place`?
bool word_ends_before(std::string_view text, std::size_t place) {
  std::size_t first = place - 1;
  while (first > 0 && place - first < 4 && (static_cast<unsigned char>(text[first]) & 0xc0U) == 0x80) --first;
  const Utf8Char c = utf8_front(text.substr(first));
  if (c.length == 0 || first + c.length != place) return false;
  const CharClass k = char_class(c.code);
  return k == CharClass::letter || k == CharClass::number;
}

}  // namespace

void Splitter::split(std::string_view text, std::vector<std::string_view>& words) const {
  while (!text.empty()) {
    const std::size_t valid = utf8_valid_prefix(text);
    if (valid > 0) split_utf8(text.substr(0, valid), words);
    text.remove_prefix(valid);
    std::size_t invalid = 0;
    while (invalid < text.size() && utf8_front(text.substr(invalid)).length == 0) ++invalid;
    if (invalid > 0) words.push_back(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
}

std::size_t Splitter::find_cut(std::string_view text, std::size_t from) const {
  if (!can_cut() || from >= text.size()) return text.size();
  for (std::size_t i = std::max<std::size_t>(from, 1); i < text.size(); ++i) {
    if ((text[i] == ' ' || text[i] == '\n') && word_ends_before(text, i)) return i;
  }
  return text.size();
}

std::span<const SplitPattern> split_patterns() { return kPatterns; }

std::shared_ptr<const Splitter> make_splitter(std::string_view name) {
  std::vector<std::string_view> names;
  for (const SplitPattern& p : kPatterns) {
    if (p.name == name) return make_splitter_for_regex(p.regex);
    names.push_back(p.name);
  }
  const std::string near = nearest_name(name, names);
  throw Error(cat("there is no pattern '", name, "'"),
              near.empty() ? "there are gpt2, cl100k, o200k and llama3" : cat("did you mean '", near, "'?"),
              ErrorKind::usage);
}

std::shared_ptr<const Splitter> make_splitter_for_regex(std::string_view regex) {
  if (regex == kGpt2) return make_gpt2_splitter();
  const bool known = std::any_of(std::begin(kPatterns), std::end(kPatterns),
                                 [&](const SplitPattern& p) { return p.regex == regex; });
  return make_pcre2_splitter(regex, known);
}

}  // namespace kiln
