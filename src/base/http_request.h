// The header of the one kind of request that kiln's own pages need: GET, of a page or its data. What is more
// than that is refused here, before anything is done for it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace kiln {

struct HttpRequest {
  std::string path;   // "/data.json": as it was sent, nothing decoded
  std::string query;  // behind its "?"
  std::string host;   // of the Host header, with its port
};

inline constexpr std::size_t kMostRequestBytes = 8192;

struct ParsedRequest {
  int status = 0;  // 0: more of it must come; 200: it is whole; else the status to refuse it with
  HttpRequest request;
};

// `text`: all that has come so far.
ParsedRequest parse_http_request(std::string_view text);

// Whether a Host header names this server: an address in digits, localhost, or one of `names`, with any port.
// A page of another site whose name was pointed at this machine (DNS rebinding) sends that name.
bool is_our_host(std::string_view host, std::span<const std::string> names);

std::string_view http_reason(int status);  // "Not Found" of 404

}  // namespace kiln
