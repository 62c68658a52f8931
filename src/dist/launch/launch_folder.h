// Where the status page and the ranks' error pipes live while a launcher runs them: a folder in memory, gone
// with it. One that was killed leaves its own behind, and the next launcher clears it away.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/launch/rank_status_page.h"

namespace kiln {

class LaunchFolder {
 public:
  explicit LaunchFolder(int ranks);
  ~LaunchFolder();
  LaunchFolder(const LaunchFolder&) = delete;
  LaunchFolder& operator=(const LaunchFolder&) = delete;

  const std::string& path() const { return path_; }
  const RankStatusPage& status_page() const { return *status_page_; }
  const std::vector<int>& pipes() const { return pipes_; }

 private:
  std::string path_;
  int lock_ = -1;  // held while this launcher lives: the folder is in use
  std::unique_ptr<RankStatusPage> status_page_;
  std::vector<int> pipes_;
};

// Removes what launchers that are gone have left in `parent`. Young folders are let be: one may be about to
// be locked.
void clear_lost_launches(const std::string& parent);

}  // namespace kiln
