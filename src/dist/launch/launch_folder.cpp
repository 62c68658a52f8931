#include "dist/launch/launch_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/on_exit.h"

namespace kiln {
namespace {

constexpr const char* kPrefix = "kiln-run-";
constexpr auto kYoung = std::chrono::minutes(1);

int open_folder(const std::string& path) { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }

}  // namespace

void clear_lost_launches(const std::string& parent) {
  std::error_code failed;
  for (std::filesystem::directory_iterator it(parent, failed), end; !failed && it != end;
       it.increment(failed)) {
    if (!it->path().filename().string().starts_with(kPrefix)) continue;
    std::error_code gone;
    const auto changed = it->last_write_time(gone);
    if (gone || std::filesystem::file_time_type::clock::now() - changed < kYoung) continue;
    const int folder = open_folder(it->path().string());
    if (folder < 0) continue;  // another user's
    const OnExit close([&] { ::close(folder); });
    if (::flock(folder, LOCK_EX | LOCK_NB) != 0) continue;  // its launcher lives
    std::filesystem::remove_all(it->path(), gone);
  }
}

LaunchFolder::LaunchFolder(int ranks) {
  std::error_code ignored;
  const std::string parent = std::filesystem::is_directory("/dev/shm", ignored) ? "/dev/shm" : "/tmp";
  clear_lost_launches(parent);
  std::string name = cat(parent, "/", kPrefix, "XXXXXX");
  if (::mkdtemp(name.data()) == nullptr)
    throw Error(cat("cannot make a folder ", name, ": ", std::strerror(errno)));
  path_ = name;
  lock_ = open_folder(path_);
  if (lock_ < 0 || ::flock(lock_, LOCK_EX | LOCK_NB) != 0)
    throw Error(cat("cannot lock the folder ", path_, ": ", std::strerror(errno)));
  status_page_ = RankStatusPage::create(path_ + "/status", ranks);
  for (int r = 0; r < ranks; ++r) {
    const std::string pipe = cat(path_, "/stderr.", r);
    // Opened for both, so that it never ends: ranks come and go.
    const int file =
        ::mkfifo(pipe.c_str(), 0600) == 0 ? ::open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1;
    if (file < 0) throw Error(cat("cannot make a pipe ", pipe, ": ", std::strerror(errno)));
    pipes_.push_back(file);
  }
}

LaunchFolder::~LaunchFolder() {
  for (int file : pipes_) ::close(file);
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace kiln
