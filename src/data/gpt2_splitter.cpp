// GPT-2's pattern by hand, exactly:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// The first alternative that matches wins, so at each place one look at the character there decides. A test
// holds it to PCRE2's answer. It is the pattern we train with, and so needs no library.
#include "data/splitter.h"
#include "data/unicode_classes.h"
#include "data/utf8.h"

namespace kiln {
namespace {

struct Classified {
  CharClass kind;
  uint32_t length;
};

Classified classify(std::string_view text, std::size_t i) {
  const auto byte = static_cast<unsigned char>(text[i]);
  if (byte < 0x80) return {char_class(byte), 1};
  const Utf8Char c = utf8_front(text.substr(i));
  return {char_class(c.code), c.length};
}

// Where the run of `kind` that includes the character before `i` ends.
std::size_t end_of_run(std::string_view text, std::size_t i, CharClass kind) {
  while (i < text.size()) {
    const Classified c = classify(text, i);
    if (c.kind != kind) break;
    i += c.length;
  }
  return i;
}

// The length of 's 't 're 've 'm 'll 'd at the front, or 0.
std::size_t contraction(std::string_view text) {
  if (text.size() < 2) return 0;
  const char a = text[1], b = text.size() > 2 ? text[2] : '\0';
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

std::size_t end_of_word(std::string_view text, std::size_t i) {
  if (text[i] == '\'') {
    if (const std::size_t n = contraction(text.substr(i))) return i + n;
  }
  const Classified first = classify(text, i);
  if (first.kind != CharClass::space) return end_of_run(text, i + first.length, first.kind);
  if (text[i] == ' ' && i + 1 < text.size()) {
    const Classified next = classify(text, i + 1);
    if (next.kind != CharClass::space) return end_of_run(text, i + 1 + next.length, next.kind);
  }
  // \s+(?!\S): white space up to its last character, which belongs to the word that follows; all of it at the
  // text's end; and \s+ where that leaves nothing.
  std::size_t last = i, end = i + first.length;
  while (end < text.size()) {
    const Classified c = classify(text, end);
    if (c.kind != CharClass::space) return last > i ? last : end;
    last = end;
    end += c.length;
  }
  return end;
}

class Gpt2Splitter final : public Splitter {
 public:
  std::string_view regex() const override { return split_patterns().front().regex; }
  bool can_cut() const override { return true; }

 protected:
  void split_utf8(std::string_view text, std::vector<std::string_view>& words) const override {
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t end = end_of_word(text, i);
      words.push_back(text.substr(i, end - i));
      i = end;
    }
  }
};

}  // namespace

std::shared_ptr<const Splitter> make_gpt2_splitter() { return std::make_shared<Gpt2Splitter>(); }

}  // namespace kiln
