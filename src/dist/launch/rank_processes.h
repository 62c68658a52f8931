// The ranks of a launch as processes of this machine, found by what they noted on the status page.
#pragma once

#include <vector>

#include "dist/launch/launch_folder.h"

namespace kiln {

class RankProcesses {
 public:
  RankProcesses(const LaunchFolder& folder, int ranks)
      : folder_(folder), stopped_(static_cast<std::size_t>(ranks)), told_(stopped_) {}

  void signal_once(int signal);  // to each that lives and has not had it yet

  // Which of them are stopped, by a signal or a debugger. To be polled while no rank has failed:
  // code that ends the ranks wakes them first.
  void look_for_stopped();
  bool was_stopped(int rank) const { return stopped_[static_cast<std::size_t>(rank)]; }

 private:
  bool is_alive(const RankStatus& line) const;

  const LaunchFolder& folder_;
  std::vector<bool> stopped_, told_;
};

}  // namespace kiln
