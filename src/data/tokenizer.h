// Text to token ids and back. Immutable once made; threads share one and pass their own scratch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/special_tokens.h"

namespace kiln {

enum class SpecialText {
  recognise,  // "<|endoftext|>" in the text is the token
  plain,      // it is thirteen characters like any others
};

class Tokenizer {
 public:
  // What one thread keeps between calls; words it has seen, for instance.
  class Scratch {
   public:
    virtual ~Scratch() = default;
  };

  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  virtual std::string_view kind() const = 0;  // "byte", "bpe"
  virtual int32_t vocab_size() const = 0;     // every id is below it
  const SpecialTokens& specials() const { return specials_; }

  // The bytes an id stands for; Error when there is no such id.
  virtual std::string_view bytes_of(int32_t id) const = 0;

  // 16 hexadecimal digits of the vocabulary, what each id stands for; stored with tokens and checkpoints, so
  // that a model never gets the ids of another tokenizer. The same for one vocabulary in any file format.
  virtual std::string fingerprint() const = 0;

  virtual std::unique_ptr<Scratch> make_scratch() const = 0;

  // Appends the ids of any bytes; special tokens are plain text here.
  virtual void encode_plain(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const = 0;

  // The first place at or after `from` where the text can be cut in two that encode as the whole does.
  virtual std::size_t find_cut(std::string_view text, std::size_t from) const = 0;

  std::vector<int32_t> encode(std::string_view text, SpecialText special = SpecialText::recognise) const;
  std::string decode(std::span<const int32_t> ids) const;

 protected:
  explicit Tokenizer(SpecialTokens specials) : specials_(std::move(specials)) {}

 private:
  SpecialTokens specials_;
};

// The fingerprint of a vocabulary: the bytes of each id in order, empty where there is none.
std::string vocabulary_fingerprint(std::span<const std::string_view> bytes_of_id);

}  // namespace kiln
