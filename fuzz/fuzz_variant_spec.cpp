// Any text after --variant is a choice of variants that exist, or wrong usage with a message; nothing else
// may come out.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "bounds.h"
#include "ops/op_list.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const kiln::VariantChoice choice = kiln::parse_variants(text);
    static const auto kOps = kiln::list_ops();
    for (const auto& [op, variant] : choice.all()) {
      bool exists = false;
      for (const kiln::VariantListing& v : kiln::find_op(kOps, op).variants) exists |= v.name == variant;
      if (!exists) std::abort();
    }
  } catch (const kiln::Error& error) {
    if (error.kind() != kiln::ErrorKind::usage || *error.what() == '\0' || error.hint().empty()) std::abort();
  }
  return 0;
}
