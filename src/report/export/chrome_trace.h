// A timeline in the format that Perfetto (ui.perfetto.dev) and chrome://tracing open: {"traceEvents": [...]}.
// Spans of one lane must be nested or disjoint; those that overlap go to a lane of their own behind
// it, since Perfetto would move them there without a name.
#pragma once

#include <string>

#include "base/text_sink.h"
#include "report/export/timeline.h"

namespace kiln {

// One event a line, times in microseconds from the first one on.
void write_chrome_trace(const Timeline& timeline, const TextSink& sink);
std::string chrome_trace(const Timeline& timeline);

}  // namespace kiln
