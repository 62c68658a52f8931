// The format of what a checkpoint says of itself, manifest.json and state.json, and the one place where an
// older one becomes today's. A change of either file raises kCheckpointFormat, adds a row to kMigrations and
// a folder of the format before it to tests/goldens.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/json.h"

namespace kiln {

inline constexpr int64_t kCheckpointFormat = 1;

enum class CheckpointPart : uint8_t { manifest, state };

// Makes a document of format `from` one of `from` + 1; where the part did not change, null. A key that is
// added moves the values of others: d["new"] = d["old"] reads what has moved.
struct Migration {
  int64_t from;
  void (*manifest)(Json& document);
  void (*state)(Json& document);
};

// By format, from the first on, without a gap.
std::span<const Migration> migrations();

// Of a document just parsed. Error, `source` first, for a format that is newer than `newest`, or older than
// the table reaches.
void migrate(Json& document, CheckpointPart part, std::string_view source, int64_t newest = kCheckpointFormat,
             std::span<const Migration> table = migrations());

}  // namespace kiln
