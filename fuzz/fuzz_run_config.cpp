// Any text is a run config of `kiln train` or an Error that names its file, in one line. What was taken is
// written out and read again to the same request, and every value it set is one that its declaration allows.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/one_line.h"
#include "base/options.h"
#include "bounds.h"
#include "train/run/train_options.h"

namespace {

struct Declared {
  kiln::TrainRequest request;
  kiln::Options options;

  Declared() { kiln::add_train_options(options, request); }
  void read(const kiln::Json& document, const char* name) { options.read(kiln::JsonValue(document, name)); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Declared first;
  try {
    first.read(kiln::parse_json(text, {.max_values = 10'000, .comments = true}, "config"), "config");
  } catch (const kiln::Error& error) {
    const std::string line = kiln::one_line(error.what());
    if (line.empty() || line.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  first.options.check();  // an Error here is a value that read() should not have taken
  const kiln::Json written = first.options.json();
  Declared second;
  second.read(written, "again");
  if (second.options.json() != written) std::abort();
  return 0;
}
