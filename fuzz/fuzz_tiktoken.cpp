// Any text is a tiktoken file or an Error. An input that begins with '+' is added to the 256 bytes. What is
// taken comes back from its own writing, and means the same as a tokenizer.json.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "bounds.h"
#include "data/base64.h"
#include "data/hf_tokenizer.h"
#include "data/tiktoken_file.h"
#include "tokenizer_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  std::string text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with('+')) {
    std::string bytes;
    for (int b = 0; b < 256; ++b)
      bytes += kiln::to_base64(std::string(1, static_cast<char>(b))) + " " + std::to_string(b) + "\n";
    text.replace(0, 1, bytes);
  }
  try {
    const kiln::BpeModel model = kiln::parse_tiktoken(text, {}, "input");
    kiln::check_round_trip(model);
    if (kiln::parse_tiktoken(kiln::tiktoken_text(model), {}, "input").tokens != model.tokens) std::abort();
    kiln::check_round_trip(kiln::parse_hf_tokenizer(kiln::hf_tokenizer_json(model), "input"));
  } catch (const kiln::Error& error) {
    if (*error.what() == '\0') std::abort();
  }
  return 0;
}
