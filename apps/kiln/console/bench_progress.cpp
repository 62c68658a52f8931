#include "kiln/console/bench_progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "base/one_line.h"

namespace kiln::cli {

BenchProgress::BenchProgress() : terminal_(::isatty(STDERR_FILENO) == 1) {}

BenchProgress::~BenchProgress() { (*this)(""); }

void BenchProgress::operator()(const std::string& text) const {
  if (!terminal_) return;
  winsize window{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  const int room = known ? window.ws_col - 1 : 79;  // a line that wraps would not be written over
  std::fprintf(stderr, "\r\x1b[K%.*s", room, one_line(text).c_str());
  std::fflush(stderr);
}

}  // namespace kiln::cli
