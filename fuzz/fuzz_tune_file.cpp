// Any text is a file of measured choices or an Error that names it. What is taken has names that can be
// printed, algorithms that are hexadecimal and each problem and shape once; it is the same text when written
// out again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "bounds.h"
#include "tune/tune_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  try {
    const kiln::TuneFile file = kiln::parse_tune_file({reinterpret_cast<const char*>(data), size}, "input");
    std::set<std::string> problems;
    for (const kiln::MatmulChoice& c : file.choices) {
      if (!problems.insert(c.problem).second || c.algorithm.size() % 2 != 0 || !(c.us >= 0)) std::abort();
    }
    std::set<kiln::AttentionShape> shapes;
    for (const kiln::AttentionChoice& c : file.attention) {
      if (!shapes.insert(c.shape).second || c.tiles.keys < 1 || !(c.us >= 0)) std::abort();
    }
    if (kiln::tune_file_name(file.place.gpu).find('/') != std::string::npos) std::abort();
    const std::string again = kiln::tune_text(file);
    if (kiln::tune_text(kiln::parse_tune_file(again, "input")) != again) std::abort();
    if (kiln::tune_text(kiln::merged(file, file)) != again) std::abort();
  } catch (const kiln::Error& error) {
    if (!std::string_view(error.what()).starts_with("input")) std::abort();
  }
  return 0;
}
