// The boundary of the C interface: exceptions become a status, and a message that the thread can ask for.
#pragma once

#include "base/error.h"
#include "kiln/attention.h"

namespace kiln::abi {

const char* last_error();

// Inside a catch clause: keeps the message of what was thrown.
kiln_status status_of_current_exception() noexcept;

template <class F>
kiln_status answer(F f) noexcept {
  try {
    f();
    return KILN_OK;
  } catch (...) {
    return status_of_current_exception();
  }
}

// The mistake is the caller's.
[[noreturn]] void reject(const std::string& what, const std::string& hint = {});

}  // namespace kiln::abi
