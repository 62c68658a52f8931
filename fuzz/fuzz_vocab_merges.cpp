// Any pair of texts is a vocab.json and merges.txt or an Error. The input is the merges, a zero byte, and
// entries for the vocabulary on top of the 256 bytes; without a zero byte it is the whole vocab.json.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json_reader.h"
#include "bounds.h"
#include "data/byte_level.h"
#include "data/vocab_merges.h"
#include "merge_patch.h"
#include "tokenizer_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto zero = text.find('\0');
  try {
    std::string vocab(text), merges;
    if (zero != std::string_view::npos) {
      merges = text.substr(0, zero);
      kiln::Json page = kiln::Json::object();
      for (int b = 0; b < 256; ++b) page[kiln::to_byte_level(std::string(1, static_cast<char>(b)))] = b;
      kiln::merge_patch(page, kiln::parse_json(text.substr(zero + 1), {}, "input"));
      vocab = page.dump();
    }
    const kiln::BpeModel model = kiln::parse_vocab_merges(vocab, merges, "vocab", "merges");
    kiln::check_round_trip(model);
    const kiln::BpeModel back =
        kiln::parse_vocab_merges(kiln::vocab_json(model), kiln::merges_txt(model), "vocab", "merges");
    if (back.tokens != model.tokens || back.merges.size() != model.merges.size()) std::abort();
  } catch (const kiln::Error& error) {
    if (*error.what() == '\0') std::abort();
  }
  return 0;
}
