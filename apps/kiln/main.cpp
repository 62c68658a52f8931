// The only place where an error becomes an exit status.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/one_line.h"
#include "base/stop.h"
#include "base/wrap_text.h"
#include "dist/launch/rank_process.h"
#include "kiln/command_line.h"
#include "kiln/console/out_of_memory.h"
#include "kiln/console/stop_on_signals.h"

namespace {

enum ExitStatus : int { done = 0, failed = 1, wrong_usage = 2, not_available = 3 };

void print_problem(std::string_view what, std::string_view hint = {}) {
  const std::string problem = kiln::one_line(what), advice = kiln::one_line(hint);  // all of it, or none
  std::fprintf(stderr, "kiln: %s\n", problem.c_str());
  if (!hint.empty()) std::fprintf(stderr, "hint: %s\n", advice.c_str());
}

ExitStatus status_of(kiln::ErrorKind kind) {
  switch (kind) {
    case kiln::ErrorKind::usage:
      return wrong_usage;
    case kiln::ErrorKind::unavailable:
      return not_available;
    case kiln::ErrorKind::failed:
      break;
  }
  return failed;
}

// Help, in the width of the terminal; into a pipe a line stays a line.
std::string for_stdout(const std::string& text) {
  winsize window{};
  constexpr int kLeast = 40;  // narrower, a column of words is harder to read than broken lines
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col >= kLeast;
  return known ? kiln::wrap_text(text, window.ws_col) : text;
}

void run(const std::vector<std::string>& args) {
  const kiln::cli::Request request = kiln::cli::parse_command_line(args);
  if (request.run) {
    request.run();
  } else {
    std::fputs(for_stdout(request.text).c_str(), stdout);
  }
}

// A full disk or a closed pipe shows only now; a cut-off result must not look like success.
void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw kiln::Error("cannot write to stdout");
}

// The command, with every error as kiln's own.
void run_or_throw(const std::vector<std::string>& args) {
  try {
    run(args);
    flush_output();
  } catch (const kiln::Error&) {
    throw;
  } catch (const kiln::Stopped&) {
    std::fputs("kiln: stopped before anything was complete\n", stderr);
  } catch (const std::bad_alloc& error) {
    throw kiln::Error(kiln::words_of(error));
  } catch (const std::exception& error) {
    throw kiln::Error(std::string("internal error: ") + error.what());
  }
}

ExitStatus run_and_report(int argc, char** argv) {
  std::unique_ptr<kiln::RankProcess> rank;  // a rank's errors are reported by its launcher
  try {
    rank = std::make_unique<kiln::RankProcess>();
    run_or_throw({argv + (argc > 0 ? 1 : 0), argv + argc});
    return done;
  } catch (const kiln::Error& error) {
    std::fflush(stdout);
    if (!rank || !rank->report(error)) print_problem(error.what(), error.hint());
    return status_of(error.kind());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const kiln::cli::SayInterrupted words;
    return run_and_report(argc, argv);
  } catch (const std::bad_alloc&) {  // no memory for the error itself, or for its words
    kiln::cli::say_out_of_memory();
    return failed;
  }
}
