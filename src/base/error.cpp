#include "base/error.h"

#include <utility>

namespace kiln {

Error::Error(const std::string& what, std::string hint, ErrorKind kind)
    : std::runtime_error(what), hint_(std::move(hint)), kind_(kind) {}

}  // namespace kiln
