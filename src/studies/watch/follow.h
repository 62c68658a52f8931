// A run followed until it ends: redrawn in place on a terminal, a line now and then elsewhere.
#pragma once

#include <functional>
#include <string>

#include "base/stop.h"
#include "studies/watch/screen.h"

namespace kiln {

struct FollowOptions {
  bool once = false;           // as it is now, and no more
  bool in_place = false;       // output is a terminal
  double interval_s = 1;       // between two looks
  double line_interval_s = 5;  // between two lines, where it is none
  StopAsked stop = nullptr;
  std::function<ScreenShape()> shape;             // asked each time: a window may change
  std::function<void(const std::string&)> write;  // what is to be printed, at once
};

// Error where the folder holds no run.
void check_is_run(const std::string& folder);

// Returns the last summary. A run that has not begun to train is waited for, unless it is `once`.
RunSummary follow_run(const std::string& folder, const FollowOptions& options);

}  // namespace kiln
