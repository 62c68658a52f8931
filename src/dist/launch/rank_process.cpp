#include "dist/launch/rank_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "dist/launch/rank_env.h"
#include "dist/launch/ranks.h"

namespace kiln {

RankProcess::RankProcess() {
  const char* const folder = std::getenv(kLaunchFolderVariable);
  if (folder == nullptr) return;
  const RankEnv env = read_rank_env();
  if (!env.launched()) return;
  status_page_ = RankStatusPage::open(cat(folder, "/status"), env.rank);
  if (!status_page_) return;           // on another machine than the launcher
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // mpirun may be killed too, and then nothing else ends the ranks
  status_page_->start();
  const int pipe = ::open(cat(folder, "/stderr.", env.rank).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (pipe < 0) return;
  ::fcntl(pipe, F_SETFL, 0);  // not blocking was for opening alone
  ::dup2(pipe, STDERR_FILENO);
  ::close(pipe);
}

bool RankProcess::report(const Error& error) {
  if (!status_page_) return false;
  status_page_->fail(error);
  return true;
}

}  // namespace kiln
