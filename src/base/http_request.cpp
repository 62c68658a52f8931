#include "base/http_request.h"

#include <arpa/inet.h>

#include <algorithm>

namespace kiln {
namespace {

constexpr int kWhole = 200, kBad = 400, kNotGet = 405, kTooLarge = 413, kHeaderTooLarge = 431,
              kOtherVersion = 505;

bool is_token(std::string_view text) {
  constexpr std::string_view kMore = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kMore.find(c) != std::string_view::npos;
  });
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool is_visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

// "GET /path?query HTTP/1.1"
int read_first_line(std::string_view line, HttpRequest& request) {
  const std::size_t first = line.find(' '), second = line.rfind(' ');
  if (first == std::string_view::npos || second == first) return kBad;
  const std::string_view method = line.substr(0, first), version = line.substr(second + 1);
  const std::string_view target = line.substr(first + 1, second - first - 1);
  if (!is_token(method) || target.empty() || target.front() != '/' || !is_visible(target)) return kBad;
  if (version.size() != 8 || !version.starts_with("HTTP/")) return kBad;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return kOtherVersion;
  if (method != "GET") return kNotGet;
  const std::size_t mark = std::min(target.find('?'), target.size());
  request.path = target.substr(0, mark);
  request.query = target.substr(std::min(mark + 1, target.size()));
  return kWhole;
}

// Of the rest only who is meant, and whether a body would follow, count.
int read_header(std::string_view line, HttpRequest& request, bool& has_host) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return kBad;
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (std::any_of(value.begin(), value.end(),
                  [](char c) { return (c >= 0 && c < ' ' && c != '\t') || c == '\x7f'; }))
    return kBad;
  if (name == "transfer-encoding" || (name == "content-length" && value != "0")) return kTooLarge;
  if (name != "host") return kWhole;
  if (has_host || value.empty() || !is_visible(value)) return kBad;
  has_host = true;
  request.host = value;
  return kWhole;
}

}  // namespace

ParsedRequest parse_http_request(std::string_view text) {
  const std::size_t end = text.find("\r\n\r\n");
  if (end == std::string_view::npos) {
    if (text.size() >= kMostRequestBytes) return {kHeaderTooLarge, {}};
    // What will never be a request need not be waited for.
    if (!text.empty() && !(text.front() >= 'A' && text.front() <= 'Z')) return {kBad, {}};
    return {};
  }
  if (end + 4 > kMostRequestBytes) return {kHeaderTooLarge, {}};
  ParsedRequest parsed;
  std::string_view left = text.substr(0, end + 2);
  bool first = true, has_host = false;
  while (!left.empty()) {
    const std::size_t stop = left.find("\r\n");
    const std::string_view line = left.substr(0, stop);
    left.remove_prefix(stop + 2);
    parsed.status =
        first ? read_first_line(line, parsed.request) : read_header(line, parsed.request, has_host);
    first = false;
    if (parsed.status != kWhole) return {parsed.status, {}};
  }
  if (!has_host) return {kBad, {}};
  return parsed;
}

bool is_our_host(std::string_view host, std::span<const std::string> names) {
  std::string name = lower(host);
  if (name.starts_with('[')) {  // [::1]:8600
    const std::size_t close = name.find(']');
    if (close == std::string::npos) return false;
    const std::string_view after = std::string_view(name).substr(close + 1);
    if (!after.empty() && after.front() != ':') return false;
    in6_addr address{};
    return ::inet_pton(AF_INET6, name.substr(1, close - 1).c_str(), &address) == 1;
  }
  if (const std::size_t colon = name.find(':'); colon != std::string::npos) {
    const std::string port = name.substr(colon + 1);
    if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos)
      return false;
    name.resize(colon);
  }
  in_addr address{};
  if (name == "localhost" || ::inet_pton(AF_INET, name.c_str(), &address) == 1) return true;
  return !name.empty() &&
         std::any_of(names.begin(), names.end(), [&](const std::string& n) { return lower(n) == name; });
}

std::string_view http_reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Internal Server Error";
  }
}

}  // namespace kiln
