// Where long files go, piece by piece: a million events are not held twice.
#pragma once

#include <functional>
#include <string_view>

namespace kiln {

using TextSink = std::function<void(std::string_view)>;

}  // namespace kiln
