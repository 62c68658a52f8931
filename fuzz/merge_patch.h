// A document changed by what a fuzzer made up: members are merged into objects, null removes one, and
// anything else takes the place of what was there (RFC 7396).
#pragma once

#include "base/json.h"

namespace kiln {

inline void merge_patch(Json& target, const Json& patch) {
  if (!patch.is_object()) {
    target = patch;
    return;
  }
  if (!target.is_object()) target = Json::object();
  for (const auto& [key, value] : patch.items()) {
    if (value.is_null()) {
      target.erase(key);
    } else {
      merge_patch(target[key], value);
    }
  }
}

}  // namespace kiln
