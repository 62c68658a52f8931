// Any bytes are a request, refused, or not yet whole; what is taken is a GET of a visible path for one host,
// and what was refused or taken stays so when more bytes follow.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/http_request.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const kiln::ParsedRequest parsed = kiln::parse_http_request(text);
  (void)kiln::is_our_host(text, {});
  if (parsed.status == 0) {
    if (size >= kiln::kMostRequestBytes) std::abort();
    return 0;
  }
  if (parsed.status == 200) {
    if (parsed.request.path.empty() || parsed.request.path.front() != '/') std::abort();
    for (const std::string* s : {&parsed.request.path, &parsed.request.query, &parsed.request.host})
      for (const char c : *s)
        if (c <= ' ' || c >= '\x7f') std::abort();
    if (parsed.request.host.empty()) std::abort();
    // Bytes behind a whole request are another one's.
    if (kiln::parse_http_request(std::string(text) + "x").status != 200) std::abort();
  }
  return 0;
}
