// Any text is an index of shards or an Error that names it. What is taken names plain files only, and is the
// same after it was written out and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "bounds.h"
#include "model/hf_index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  try {
    const kiln::HfIndex index = kiln::parse_hf_index({reinterpret_cast<const char*>(data), size}, "input");
    for (const auto& [tensor, file] : index.weight_map) {
      if (file.empty() || file == ".." || file.find('/') != std::string::npos) std::abort();
    }
    const kiln::HfIndex again = kiln::parse_hf_index(kiln::hf_index_json(index), "input");
    if (again.weight_map != index.weight_map || again.total_size != index.total_size) std::abort();
  } catch (const kiln::Error& error) {
    if (!std::string_view(error.what()).starts_with("input: ")) std::abort();
  }
  return 0;
}
