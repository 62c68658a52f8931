// A timeline as one HTML page that needs no network: lanes on a canvas, totals of what is in sight, details
// of what is clicked. Made for a million spans: they are a compact block of bytes in the page, and drawn by
// levels, each of which takes eight spans for one.
#pragma once

#include <string>

#include "base/text_sink.h"
#include "report/export/timeline.h"

namespace kiln {

void write_timeline_html(const Timeline& timeline, const TextSink& sink);

// Both files of a timeline: the trace for Perfetto at `trace_path` ("x.trace.json") and the page beside it,
// whose path is returned ("x.html").
std::string write_timeline_files(const Timeline& timeline, const std::string& trace_path);

}  // namespace kiln
