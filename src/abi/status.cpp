#include "abi/status.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string_view>

namespace kiln::abi {
namespace {

// A fixed place: to remember that memory ran out must not take memory.
thread_local std::array<char, 2048> message{};

void remember(std::string_view what, std::string_view hint) {
  std::size_t at = 0;
  const auto add = [&](std::string_view text) {
    const std::size_t count = std::min(text.size(), message.size() - 1 - at);
    std::memcpy(message.data() + at, text.data(), count);
    at += count;
  };
  add(what);
  if (!hint.empty()) {
    add("; ");
    add(hint);
  }
  message[at] = '\0';
}

kiln_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return KILN_BAD_ARGUMENT;
    case ErrorKind::unavailable:
      return KILN_NOT_AVAILABLE;
    case ErrorKind::failed:
      return KILN_CUDA_FAILURE;  // once the arguments are right, nothing else can fail
  }
  return KILN_INTERNAL_ERROR;
}

}  // namespace

const char* last_error() { return message.data(); }

kiln_status status_of_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& e) {
    remember(e.what(), e.hint());
    return status_of(e.kind());
  } catch (const std::exception& e) {
    remember("[attention] kiln itself failed", e.what());
  } catch (...) {
    remember("[attention] kiln itself failed", {});
  }
  return KILN_INTERNAL_ERROR;
}

void reject(const std::string& what, const std::string& hint) {
  throw Error(cat("[attention] ", what), hint, ErrorKind::usage);
}

}  // namespace kiln::abi
