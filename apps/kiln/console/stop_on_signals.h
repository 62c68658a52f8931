// Ctrl-C, SIGTERM and a lost terminal as a request: while a StopOnSignals lives, the first signal only sets
// stop_requested(), so that what is done can be kept, and says so; the second, of any kind, ends the process
// as if there were no handler. A launcher has processes to end first: it notes the second too, and ends
// itself by it. Ranks say nothing: their launcher does.
#pragma once

#include <array>
#include <atomic>

namespace kiln::cli {

const std::atomic<bool>& stop_requested();

enum class SecondSignal { ends, noted };

class StopOnSignals {
 public:
  explicit StopOnSignals(SecondSignal second = SecondSignal::ends);
  ~StopOnSignals();
  StopOnSignals(const StopOnSignals&) = delete;
  StopOnSignals& operator=(const StopOnSignals&) = delete;

  // Of SecondSignal::noted: the signal to end by, once there was a second one; 0 before.
  static int second();
  [[noreturn]] static void end_by(int signal);  // as if it had had no handler

 private:
  using Handler = void (*)(int);
  std::array<Handler, 3> previous_{};
  Handler broken_pipe_ = nullptr;
};

// Ctrl-C and SIGTERM where no StopOnSignals lives end the process with a word. For main.
class SayInterrupted {
 public:
  SayInterrupted();
};

}  // namespace kiln::cli
