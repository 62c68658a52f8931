// Any text is a JSON document within the limits or an Error that names its source. What is taken is read the
// same way again after it was written out, and its keys were all different: nothing was dropped on the way.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/json_reader.h"
#include "bounds.h"

namespace {

void check_depth(const kiln::Json& value, int left) {
  if (left < 0) std::abort();
  const auto check = [left](const kiln::Json& child) {
    if (child.is_structured()) check_depth(child, left - 1);
  };
  if (value.is_array()) {
    for (const kiln::Json& child : value) check(child);
  } else {
    for (const auto& [key, child] : value.items()) check(child);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  kiln::JsonLimits limits{.max_bytes = 1 << 16, .max_depth = 8, .max_values = 1000};
  limits.comments = size % 2 == 1;
  try {
    const kiln::Json value = kiln::parse_json(text, limits, "input");
    if (text.find('\0') != std::string_view::npos) std::abort();  // nothing behind it would have been read
    if (value.is_structured()) check_depth(value, limits.max_depth - 1);
    if (kiln::parse_json(value.dump(), limits, "again") != value) std::abort();
    const kiln::JsonValue root(value, "input");
    (void)root.get("a").is_null();
    if (value.is_number()) (void)root.integer(-10, 10);
  } catch (const kiln::Error& error) {
    const std::string_view what = error.what();
    if (!what.starts_with("input: ")) std::abort();
  }
  return 0;
}
