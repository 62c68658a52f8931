// std::thread whose failure to start is one of kiln's errors: its own word, "Resource temporarily
// unavailable", tells nobody that memory or the number of processes is what ran out.
#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace kiln {

// `whose`: "the prefetch of batches". Error, or std::bad_alloc.
template <class F>
std::thread start_thread(std::string_view whose, F&& f) {
  try {
    return std::thread(std::forward<F>(f));
  } catch (const std::system_error& e) {
    throw Error(cat("the thread of ", whose, " did not start: ", e.what()),
                "allow this user more processes and memory (ulimit -u, ulimit -v)");
  }
}

}  // namespace kiln
