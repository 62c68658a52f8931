#include "base/kernel_log.h"

#include <string_view>

namespace kiln {

void KernelLog::note(const std::source_location& where) {
  constexpr std::string_view kOps = "/ops/";
  if (current_ == nullptr) return;
  const std::string_view path = where.file_name();
  const auto ops = path.rfind(kOps);
  note(std::string(ops == std::string_view::npos ? path : path.substr(ops + kOps.size())));
}

}  // namespace kiln
