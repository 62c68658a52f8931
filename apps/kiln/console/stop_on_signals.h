// Ctrl-C, SIGTERM and a lost terminal as a request: while a StopOnSignals lives, the first signal only sets
// stop_requested(), so that what is done can be kept; the second, of any kind, ends the process as if there
// were no handler.
#pragma once

#include <array>
#include <atomic>

namespace kiln::cli {

const std::atomic<bool>& stop_requested();

class StopOnSignals {
 public:
  StopOnSignals();
  ~StopOnSignals();
  StopOnSignals(const StopOnSignals&) = delete;
  StopOnSignals& operator=(const StopOnSignals&) = delete;

 private:
  using Handler = void (*)(int);
  std::array<Handler, 3> previous_{};
  Handler broken_pipe_ = nullptr;
};

}  // namespace kiln::cli
