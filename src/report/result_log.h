// runs/results.jsonl: every measured figure, one JSON object a line, appended and never rewritten.
#pragma once

#include <string>
#include <vector>

namespace kiln {

// Creates `folder` where it is not there. All lines go out in one write to a file opened for appending, so
// that runs side by side do not cut into each other's lines. Throws Error naming the file and the reason; no
// lines at all is how to ask beforehand.
void append_results(const std::string& folder, const std::vector<std::string>& lines);

// "2026-11-20T14:03:07Z"
std::string utc_now();

}  // namespace kiln
