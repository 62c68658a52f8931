// Cuts text into words before BPE: merges never cross a word's edge. A word is defined by a regular
// expression; GPT-2's is hand-coded (gpt2_splitter.cpp), the others by PCRE2 (pcre2/, or no_pcre2.cpp without
// it).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

class Splitter {
 public:
  virtual ~Splitter() = default;
  Splitter() = default;
  Splitter(const Splitter&) = delete;
  Splitter& operator=(const Splitter&) = delete;

  virtual std::string_view regex() const = 0;

  // True where `find_cut` gives places at which a text can be cut without changing its words.
  virtual bool can_cut() const = 0;

  // Appends the words of any bytes, in order; concatenated they are the text. Stretches of valid UTF-8 are
  // split each for itself, a run of bytes that are not UTF-8 is a separate word.
  void split(std::string_view text, std::vector<std::string_view>& words) const;

  // The first place at or after `from` where the text can be cut in two that split as the whole does; its end
  // where there is none. The place is between a letter or number and a space or line end: no pattern we know
  // has a word that continues there, and none looks across.
  std::size_t find_cut(std::string_view text, std::size_t from) const;

 protected:
  // `text` is valid UTF-8 and not empty. What the expression does not match becomes words too.
  virtual void split_utf8(std::string_view text, std::vector<std::string_view>& words) const = 0;
};

struct SplitPattern {
  std::string_view name;
  std::string_view regex;
};

// gpt2, cl100k, o200k, llama3.
std::span<const SplitPattern> split_patterns();

// By the name of a known pattern (usage error with the nearest name), or by the text of an expression. The
// text of a known pattern gives that pattern. Without PCRE2 everything but GPT-2's is Error(unavailable).
std::shared_ptr<const Splitter> make_splitter(std::string_view name);
std::shared_ptr<const Splitter> make_splitter_for_regex(std::string_view regex);

// The two ways to split; make_splitter chooses.
std::shared_ptr<const Splitter> make_gpt2_splitter();
std::shared_ptr<const Splitter> make_pcre2_splitter(std::string_view regex, bool can_cut);

// "10.42 2022-12-11", or empty where kiln was built without.
std::string pcre2_version();

}  // namespace kiln
