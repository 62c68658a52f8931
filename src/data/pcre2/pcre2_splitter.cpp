// Any pattern, by PCRE2 with its JIT compiler. UTF and UCP: \p classes and case by Unicode.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "base/error.h"
#include "data/splitter.h"
#include "data/utf8.h"

namespace kiln {
namespace {

// The Unicode property White_Space. PCRE2's \s has U+180E besides, which left that property in Unicode 6.3;
// the tokenizers these patterns come from do not count it.
constexpr std::string_view kSpace =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// The same expression with \s and \S spelled out; \S inside brackets cannot be, and stays.
std::string spell_out_space(std::string_view regex) {
  std::string text;
  bool in_brackets = false;
  for (std::size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\' && i + 1 < regex.size()) {
      const char next = regex[++i];
      if (next == 's') {
        text += in_brackets ? std::string(kSpace) : cat("[", kSpace, "]");
      } else if (next == 'S' && !in_brackets) {
        text += cat("[^", kSpace, "]");
      } else {
        text += {c, next};
      }
      continue;
    }
    if (c == '[') in_brackets = true;
    if (c == ']') in_brackets = false;
    text += c;
  }
  return text;
}

std::string message_of(int code) {
  std::array<unsigned char, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

struct CodeDeleter {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct MatchDeleter {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
struct ContextDeleter {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};

class Pcre2Splitter final : public Splitter {
 public:
  Pcre2Splitter(std::string_view regex, bool can_cut) : regex_(regex), can_cut_(can_cut) {
    constexpr std::size_t kLongest = 16 * 1024;
    if (regex.size() > kLongest)
      throw Error(cat("a pattern of ", regex.size(), " bytes; at most ", kLongest, " are taken"));
    const std::string text = spell_out_space(regex);
    int code = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr));
    if (!code_)
      throw Error(cat("the pattern '", regex.substr(0, 200), "' is not understood: ", message_of(code)));
    // Where the system forbids memory that is written and then run there is no JIT: slower, the same words.
    (void)pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  }

  std::string_view regex() const override { return regex_; }
  bool can_cut() const override { return can_cut_; }

 protected:
  void split_utf8(std::string_view text, std::vector<std::string_view>& words) const override {
    const std::unique_ptr<pcre2_match_data, MatchDeleter> match(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const std::unique_ptr<pcre2_match_context, ContextDeleter> context(pcre2_match_context_create(nullptr));
    if (!match || !context) throw Error("no memory for matching a pattern");
    // A pattern from a file may try every way through a text: better an error than hours.
    pcre2_set_match_limit(context.get(), 50'000'000);
    pcre2_set_heap_limit(context.get(), 256 * 1024);  // KiB
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
    const auto add = [&](std::size_t from, std::size_t to) {
      if (to > from) words.push_back(text.substr(from, to - from));
    };
    std::size_t done = 0, i = 0;
    while (i < text.size()) {
      const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), i,
                                    PCRE2_NO_UTF_CHECK, match.get(), context.get());
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0) throw Error(cat("splitting text by '", regex_.substr(0, 200), "': ", message_of(found)));
      if (bounds[1] <= bounds[0] || bounds[1] <= i) {  // an empty match: continue at the next character
        i += utf8_front(text.substr(i)).length;
        continue;
      }
      const std::size_t begin = bounds[0] < done ? done : bounds[0];  // \K can set it anywhere
      add(done, begin);
      add(begin, bounds[1]);
      done = i = bounds[1];
    }
    add(done, text.size());
  }

 private:
  std::string regex_;
  bool can_cut_;
  std::unique_ptr<pcre2_code, CodeDeleter> code_;
};

}  // namespace

std::shared_ptr<const Splitter> make_pcre2_splitter(std::string_view regex, bool can_cut) {
  return std::make_shared<Pcre2Splitter>(regex, can_cut);
}

std::string pcre2_version() {
  std::array<char, 64> text{};
  pcre2_config(PCRE2_CONFIG_VERSION, text.data());
  return text.data();
}

}  // namespace kiln
