// Any text is a tokenizer.json or an Error. One that is taken encodes any text and gets it back, and written
// out and read again it gives the same ids. To get past "every byte needs a token" the input may be short for
// it: where it begins with '+', what follows is merged into a tokenizer that has them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json_reader.h"
#include "bounds.h"
#include "data/byte_tokenizer.h"
#include "data/hf_tokenizer.h"
#include "data/load_tokenizer.h"
#include "merge_patch.h"
#include "tokenizer_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  std::string text(reinterpret_cast<const char*>(data), size);
  try {
    if (text.starts_with('+')) {
      static const kiln::Json kBytes = kiln::Json::parse(kiln::tokenizer_json(*kiln::make_byte_tokenizer()));
      kiln::Json page = kBytes;
      kiln::merge_patch(page, kiln::parse_json(std::string_view(text).substr(1), {}, "input"));
      text = page.dump();
    }
    const kiln::BpeModel model = kiln::parse_hf_tokenizer(text, "input");
    kiln::check_round_trip(model);
    const std::string written = kiln::hf_tokenizer_json(model);
    if (kiln::hf_tokenizer_json(kiln::parse_hf_tokenizer(written, "input")) != written) std::abort();
  } catch (const kiln::Error& error) {
    if (*error.what() == '\0') std::abort();
  }
  return 0;
}
