#include "dist/launch/process_tree.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "base/error.h"

namespace kiln {
namespace {

struct Found {
  pid_t pid;
  ProcessStat stat;
};

std::vector<Found> all_processes() {
  std::vector<Found> found;
  std::error_code failed;
  for (std::filesystem::directory_iterator it("/proc", failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string name = it->path().filename().string();
    pid_t pid = 0;
    const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc{} || rest != name.data() + name.size()) continue;
    std::ifstream file(it->path() / "stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (const auto stat = parse_process_stat(text)) found.push_back({pid, *stat});
  }
  return found;
}

// Of `root`, without the children in `others` and what those have started.
std::vector<Found> descendants(pid_t root, const std::vector<pid_t>& others) {
  std::multimap<pid_t, Found> children;
  for (const Found& f : all_processes()) children.emplace(f.stat.parent, f);
  std::vector<Found> tree;
  std::vector<pid_t> parents = {root};
  while (!parents.empty()) {
    const pid_t parent = parents.back();
    parents.pop_back();
    const auto [from, to] = children.equal_range(parent);
    for (auto it = from; it != to; ++it) {
      if (std::find(others.begin(), others.end(), it->second.pid) != others.end()) continue;
      tree.push_back(it->second);
      parents.push_back(it->second.pid);
    }
  }
  return tree;
}

}  // namespace

std::optional<ProcessStat> parse_process_stat(std::string_view text) {
  const std::size_t name = text.rfind(") ");
  if (name == std::string_view::npos || name + 5 > text.size()) return {};
  ProcessStat stat;
  stat.state = text[name + 2];
  const char* const from = text.data() + name + 4;
  const auto [end, error] = std::from_chars(from, text.data() + text.size(), stat.parent);
  if (error != std::errc{}) return {};
  return stat;
}

ProcessTree::ProcessTree() {
  (void)::prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_);
  (void)::prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (const Found& f : descendants(::getpid(), {}))
    if (f.stat.parent == ::getpid()) others_.push_back(f.pid);
}

ProcessTree::~ProcessTree() { (void)::prctl(PR_SET_CHILD_SUBREAPER, was_subreaper_); }

std::vector<pid_t> ProcessTree::living(pid_t kept) const {
  std::vector<pid_t> pids;
  for (const Found& f : descendants(::getpid(), others_)) {
    if (f.stat.state != 'Z') {
      pids.push_back(f.pid);
    } else if (f.stat.parent == ::getpid() && f.pid != kept) {
      (void)::waitpid(f.pid, nullptr, WNOHANG);
    }
  }
  return pids;
}

void ProcessTree::signal(int signal, pid_t kept) const {
  for (const pid_t pid : living(kept)) ::kill(pid, signal);
}

bool ProcessTree::end(std::chrono::milliseconds within, pid_t kept) const {
  const auto until = std::chrono::steady_clock::now() + within;
  for (;;) {
    const std::vector<pid_t> left = living(kept);
    if (left.empty()) return true;
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace kiln
