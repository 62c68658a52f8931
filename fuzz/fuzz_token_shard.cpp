// Any bytes are a file of tokens, all of which can be read and are within the vocabulary, or an Error that
// names the file; and any text is a dataset.json or an Error. The first byte chooses the name, since names
// matter for headerless files.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "bounds.h"
#include "data/token_folder.h"
#include "data/token_format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  if (size == 0) return 0;
  const std::string_view path = data[0] % 2 == 0 ? "f.bin" : "f.npy";
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  try {
    const kiln::TokenLayout layout = kiln::sniff_tokens(bytes, path);
    if (layout.count < 1 ||
        layout.offset + static_cast<std::size_t>(layout.count) * kiln::size_of(layout.type) != bytes.size())
      std::abort();
    std::vector<int32_t> ids(static_cast<std::size_t>(layout.count));
    kiln::read_tokens(bytes, layout, 0, ids, 30'000, path);
    if (*std::min_element(ids.begin(), ids.end()) < 0 || *std::max_element(ids.begin(), ids.end()) >= 30'000)
      std::abort();
  } catch (const kiln::Error& error) {
    if (std::string_view(error.what()).find(path) == std::string_view::npos) std::abort();
  }
  try {
    (void)kiln::parse_dataset_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "input");
  } catch (const kiln::Error& error) {
    if (!std::string_view(error.what()).starts_with("input: ")) std::abort();
  }
  return 0;
}
