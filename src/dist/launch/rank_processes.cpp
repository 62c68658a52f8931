#include "dist/launch/rank_processes.h"

#include <csignal>
#include <fstream>
#include <iterator>
#include <string>

#include "base/error.h"

namespace kiln {
namespace {

std::string text_of(int pid, const char* name) {
  std::ifstream file(cat("/proc/", pid, "/", name));
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

bool RankProcesses::is_alive(const RankStatus& line) const {
  if (line.pid <= 0 || ::kill(line.pid, 0) != 0) return false;
  // The number may have been given to another process since: ours has our folder in its environment.
  return text_of(line.pid, "environ").find(folder_.path()) != std::string::npos;
}

void RankProcesses::signal_once(int signal) {
  for (std::size_t i = 0; i < told_.size(); ++i) {
    if (told_[i]) continue;
    const RankStatus line = folder_.status_page().read(static_cast<int>(i));
    if (!is_alive(line)) continue;
    told_[i] = true;
    ::kill(line.pid, signal);
  }
}

void RankProcesses::look_for_stopped() {
  std::vector<bool> now(stopped_.size());
  for (std::size_t i = 0; i < now.size(); ++i) {
    const RankStatus line = folder_.status_page().read(static_cast<int>(i));
    if (line.state == RankState::failed) return;
    if (!is_alive(line)) continue;
    const std::string stat = text_of(line.pid, "stat");  // "812 (kiln) T 1 ...": the name may hold anything
    const std::size_t name = stat.rfind(") ");
    now[i] = name != std::string::npos && name + 2 < stat.size() &&
             (stat[name + 2] == 'T' || stat[name + 2] == 't');
  }
  stopped_ = std::move(now);
}

}  // namespace kiln
