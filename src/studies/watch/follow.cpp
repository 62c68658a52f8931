#include "studies/watch/follow.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/error.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

bool is_over(const RunSummary& s) { return s.state == RunState::finished || s.state == RunState::stopped; }

// Over the screen before it, whatever that had: up as many lines, each cleared behind its end, and all below.
std::string redrawn(const std::string& screen, long lines_before) {
  std::string text = lines_before > 0 ? cat("\x1b[", lines_before, "A\r") : "";
  for (const char c : screen) text += c == '\n' ? std::string("\x1b[K\n") : std::string(1, c);
  return text + "\x1b[J";
}

void wait(double seconds, const StopAsked& stop) {
  constexpr auto kLook = std::chrono::milliseconds(50);  // Ctrl-C is answered within it
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (Clock::now() < until && !(stop && stop()))
    std::this_thread::sleep_for(std::min<Clock::duration>(kLook, until - Clock::now()));
}

}  // namespace

void check_is_run(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw Error(cat("'", folder, "' is no folder"), "name the folder of a run: --out of kiln train",
                ErrorKind::usage);
  for (const char* file : {"metrics.jsonl", "run.json", "lock"})
    if (fs::exists(fs::path(folder) / file, ignored)) return;
  throw Error(cat("'", folder, "' has neither run.json nor metrics.jsonl: it is no folder of kiln train"),
              "name the folder of one run, such as runs/README-nano", ErrorKind::usage);
}

RunSummary follow_run(const std::string& folder, const FollowOptions& o) {
  check_is_run(folder);
  RunReader reader(folder);
  long drawn = 0;
  bool said = false;
  auto last_line = Clock::now();
  for (;;) {
    const bool fresh = reader.refresh();
    const RunSummary s = summarize_run(reader);
    const bool last = o.once || is_over(s) || (o.stop && o.stop());
    if (o.in_place || o.once) {
      const std::string screen = watch_screen(s, reader.curves(), o.shape());
      o.write(o.in_place ? redrawn(screen, drawn) : screen);
      drawn = std::count(screen.begin(), screen.end(), '\n');
    } else if (!said || last ||
               (fresh && Clock::now() - last_line >= std::chrono::duration<double>(o.line_interval_s))) {
      o.write(watch_line(s) + "\n");
      last_line = Clock::now();
      said = true;
    }
    if (last) return s;
    wait(o.interval_s, o.stop);
  }
}

}  // namespace kiln
