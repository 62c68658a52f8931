// A run as a screen of a terminal: figures, their recent course, and the curve of its loss.
#pragma once

#include <string>

#include "studies/watch/run_summary.h"

namespace kiln {

struct ScreenShape {
  int width = 80, height = 24;
  bool unicode = true;  // else in ASCII
};

// At most `height` lines of at most `width` characters, each ended by '\n'.
std::string watch_screen(const RunSummary& summary, const RunCurves& curves, const ScreenShape& shape);

// One line, for a log.
std::string watch_line(const RunSummary& summary);

std::string human_duration(double seconds);  // "12 s", "3:05 min", "2:10 h", "3 d 4 h"

}  // namespace kiln
