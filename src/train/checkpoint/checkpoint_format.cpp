#include "train/checkpoint/checkpoint_format.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_reader.h"

namespace kiln {

// None yet: format 1 is the first.
std::span<const Migration> migrations() { return {}; }

void migrate(Json& document, CheckpointPart part, std::string_view source, int64_t newest,
             std::span<const Migration> table) {
  const JsonValue root(document, source);
  int64_t format = root.at("format").integer(0, 1 << 30);
  if (format > newest)
    root.at("format").fail(cat("is ", format, "; this kiln reads up to ", newest),
                           "it was written by a newer kiln: resume with that one");
  while (format < newest) {
    const auto row =
        std::find_if(table.begin(), table.end(), [&](const Migration& m) { return m.from == format; });
    if (row == table.end()) root.at("format").fail(cat("is ", format, "; this kiln reads 1 to ", newest));
    const auto change = part == CheckpointPart::manifest ? row->manifest : row->state;
    if (change != nullptr) change(document);
    document["format"] = ++format;
  }
}

}  // namespace kiln
