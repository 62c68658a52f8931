// kiln watch: a run in the terminal, or as a page, while it trains and afterwards.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "kiln/command.h"
#include "kiln/console/stop_on_signals.h"
#include "studies/watch/dashboard_options.h"
#include "studies/watch/follow.h"

namespace kiln::cli {
namespace {

struct Asked {
  std::string run;
  FollowOptions follow;
  DashboardOptions dashboard;
};

// The first of these that is set says what the terminal shows.
bool shows_unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string text(value);
    return text.find("UTF-8") != std::string::npos || text.find("utf8") != std::string::npos;
  }
  return false;
}

ScreenShape shape_of_terminal() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
  return known ? ScreenShape{size.ws_col - 1, size.ws_row - 1, shows_unicode()}
               : ScreenShape{80, 24, shows_unicode()};
}

void print_now(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void run_watch(const Asked& asked, const CommonOptions& common) {
  check_is_run(asked.run);
  const StopOnSignals signals;
  FollowOptions o = asked.follow;
  o.stop = [] { return stop_requested().load(); };
  if (common.json) {
    RunReader reader(asked.run);
    (void)reader.refresh();
    fmt::print("{}\n", summary_json(summarize_run(reader)).dump(2));
    return;
  }
  if (const std::unique_ptr<Dashboard> page = open_dashboard(asked.dashboard, asked.run, false)) {
    fmt::print(stderr, "dashboard  {}\n", page->url());
    // Until Ctrl-C: a page of a run that is over is still looked at.
    while (!o.stop()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return;
  }
  o.in_place = !o.once && ::isatty(STDOUT_FILENO) == 1;
  o.shape = shape_of_terminal;
  o.write = print_now;
  (void)follow_run(asked.run, o);
}

}  // namespace

void add_watch(Command& c, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  c.opt("RUN", asked->run, "folder of a run of kiln train, while it trains or afterwards").required();
  c.opt("--once", asked->follow.once, "the run as it is now, and no more").not_in_config();
  c.opt("--interval", asked->follow.interval_s, between(0.1, 3600.0), "seconds between two looks");
  add_dashboard_options(c.options, asked->dashboard);
  c.run = [asked, &common] { run_watch(*asked, common); };
}

}  // namespace kiln::cli
