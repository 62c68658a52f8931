#include "kiln/console/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/one_line.h"

namespace kiln::cli {

ProgressBar::ProgressBar() : terminal_(::isatty(STDERR_FILENO) == 1), last_(Clock::now()) {}

ProgressBar::~ProgressBar() {
  if (drawn_ && terminal_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::show(const std::string& what, double fraction, const std::string& detail) {
  constexpr int kWidth = 30;
  constexpr auto kRedraw = std::chrono::milliseconds(100);  // often enough for an eye
  constexpr auto kNextLine = std::chrono::seconds(10);      // seldom enough for a log
  const auto now = Clock::now();
  if (now - last_ < (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kNextLine))) return;
  last_ = now;
  drawn_ = true;
  fraction = std::clamp(fraction, 0.0, 1.0);
  const std::string text = one_line(fmt::format("{:3.0f} % {}", 100 * fraction, detail));
  if (!terminal_) {
    std::fprintf(stderr, "%s: %s\n", what.c_str(), text.c_str());
    return;
  }
  const auto full = static_cast<std::size_t>(kWidth * fraction);
  std::fprintf(stderr, "\r\x1b[K%s [%s%s] %s", what.c_str(), std::string(full, '#').c_str(),
               std::string(kWidth - full, '.').c_str(), text.c_str());
  std::fflush(stderr);
}

BenchProgress::BenchProgress() : terminal_(::isatty(STDERR_FILENO) == 1) {}

BenchProgress::~BenchProgress() { (*this)(""); }

void BenchProgress::operator()(const std::string& text) const {
  if (!terminal_) return;
  winsize window{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  const int width = known ? window.ws_col - 1 : 79;  // a line that wraps would not be written over
  std::fprintf(stderr, "\r\x1b[K%.*s", width, one_line(text).c_str());
  std::fflush(stderr);
}

}  // namespace kiln::cli
