// Any text is a config.json or an Error that names it. What is taken can be built, and is the same after it
// was written out and read again. Where the input begins with '+', what follows is merged into one that is
// whole, to get past the keys that must be there.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json_reader.h"
#include "bounds.h"
#include "merge_patch.h"
#include "model/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  std::string text(reinterpret_cast<const char*>(data), size);
  try {
    if (text.starts_with('+')) {
      static const kiln::Json kWhole = kiln::Json::parse(kiln::hf_config_json({}));
      kiln::Json page = kWhole;
      kiln::merge_patch(page, kiln::parse_json(std::string_view(text).substr(1), {}, "input"));
      text = page.dump();
    }
    const kiln::HfConfig config = kiln::parse_hf_config(text, "input");
    const std::string written = kiln::hf_config_json(config);
    if (kiln::hf_config_json(kiln::parse_hf_config(written, "input")) != written) std::abort();
    try {
      kiln::check_config(config.model);
    } catch (const kiln::Error&) {
      std::abort();
    }
  } catch (const kiln::Error& error) {
    if (!std::string_view(error.what()).starts_with("input: ")) std::abort();
  }
  return 0;
}
