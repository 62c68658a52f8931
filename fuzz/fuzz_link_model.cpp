// Any text is a link or an Error that names the option. A link that is taken has times that can be waited
// for, and is the same link when its own words are read again.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "bounds.h"
#include "dist/comm/link_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const kiln::LinkModel link = kiln::LinkModel::parse(text, "--link");
    if (!(link.latency >= 0) || !(link.bandwidth > 0) || !std::isfinite(link.latency)) std::abort();
    const kiln::LinkModel again = kiln::LinkModel::parse(link.str(), "--link");
    if (again.str() != link.str()) std::abort();
  } catch (const kiln::Error& error) {
    if (std::string_view(error.what()).find("--link") == std::string_view::npos) std::abort();
  }
  return 0;
}
