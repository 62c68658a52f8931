#include "base/error.h"

#include <new>
#include <utility>

namespace kiln {

Error::Error(const std::string& what, std::string hint, ErrorKind kind)
    : std::runtime_error(what), hint_(std::move(hint)), kind_(kind) {}

const char* words_of(const std::exception& error) noexcept {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory on the host";
  return error.what();
}

}  // namespace kiln
