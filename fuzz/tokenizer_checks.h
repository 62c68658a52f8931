// What must hold for every tokenizer a file can describe.
#pragma once

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "data/bpe_tokenizer.h"

namespace kiln {

// A text comes back as it was, in ids below the vocabulary's size.
inline void check_round_trip(const BpeModel& model) {
  const auto tokenizer = make_bpe_tokenizer(model);
  const std::string text = "Hello  w\u00f6rld's 123\n\xff<|endoftext|>aaaaaaaa";
  try {
    const auto ids = tokenizer->encode(text);
    for (const int32_t id : ids) {
      if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
    }
    if (tokenizer->decode(ids) != text) std::abort();
  } catch (const Error& error) {
    // A pattern of the file's own may give up; nothing else may go wrong.
    if (std::string_view(error.what()).find("splitting text by") != 0) std::abort();
  }
}

}  // namespace kiln
