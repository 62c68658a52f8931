#include "kiln/console/stop_on_signals.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "dist/launch/ranks.h"

namespace kiln::cli {
namespace {

// What must be reachable from a signal handler.
std::atomic<bool> requested{false};
std::atomic<bool> notes_second{false};
std::atomic<int> second_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);
constexpr std::array<int, 3> kStopSignals = {SIGINT, SIGTERM, SIGHUP};  // the last: the terminal is gone

// Chosen before a handler may need them: it can only write.
std::string_view stopping, interrupted;
void choose_words() {
  if (std::getenv(kLaunchFolderVariable) != nullptr) return;
  const bool terminal = ::isatty(STDERR_FILENO) == 1;  // a live line is overwritten
  stopping = terminal ? "\r\x1b[Kkiln: stopping after what is under way; again: at once\n"
                      : "kiln: stopping after what is under way; again: at once\n";
  interrupted = terminal ? "\r\x1b[Kkiln: interrupted\n" : "kiln: interrupted\n";
}

void say(std::string_view words) {
  const int before = errno;
  while (!words.empty() && ::write(STDERR_FILENO, words.data(), words.size()) < 0 && errno == EINTR) {
  }
  errno = before;
}

extern "C" void on_last_signal(int signal) {
  say(interrupted);
  std::signal(signal, SIG_DFL);
  std::raise(signal);  // held back until the handler returns
}

extern "C" void on_stop_signal(int received) {
  if (requested.exchange(true)) {
    if (notes_second.load()) second_signal.store(received);
    return;
  }
  say(stopping);
  if (notes_second.load()) return;
  for (const int signal : kStopSignals) {
    // What was ignored when the process began stays so: nohup means it.
    if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

}  // namespace

SayInterrupted::SayInterrupted() {
  choose_words();
  for (const int signal : {SIGINT, SIGTERM}) {
    if (std::signal(signal, on_last_signal) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

const std::atomic<bool>& stop_requested() { return requested; }

int StopOnSignals::second() { return second_signal.load(); }

void StopOnSignals::end_by(int signal) {
  std::signal(signal, SIG_DFL);
  (void)std::raise(signal);
  ::_exit(128 + signal);
}

StopOnSignals::StopOnSignals(SecondSignal second) {
  choose_words();
  requested.store(false);
  notes_second.store(second == SecondSignal::noted);
  second_signal.store(0);
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    previous_[i] = std::signal(kStopSignals[i], on_stop_signal);
    if (previous_[i] == SIG_IGN) std::signal(kStopSignals[i], SIG_IGN);
  }
  broken_pipe_ = std::signal(SIGPIPE, SIG_IGN);  // the reader of our output is gone; the work is not
}

StopOnSignals::~StopOnSignals() {
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) std::signal(kStopSignals[i], previous_[i]);
  std::signal(SIGPIPE, broken_pipe_);
}

}  // namespace kiln::cli
