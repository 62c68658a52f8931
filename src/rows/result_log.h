// runs/results.jsonl: every measured figure, one JSON object a line, appended and never rewritten, but for a
// line that a killed process or a full disk cut off.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace kiln {

// Creates `folder` where it is not there. All lines go out in one write to a file opened for appending, so
// that runs side by side do not cut into each other's lines. Throws Error naming the file and the reason; no
// lines at all checks that beforehand.
void append_results(const std::string& folder, const std::vector<std::string>& lines);

struct StoredResults {
  std::vector<Json> rows;
  std::vector<std::string> notes;  // what was not a row: a sentence each
};

// Every row of `folder`, none where there is no file. A line that is no JSON object is left out and named.
StoredResults read_results(const std::string& folder);

// Where the file's last line has no end, it was cut off: that line goes, what is before it stays. The
// sentence to say about it, or empty. A whole line that only lacks its end gets one.
std::string repair_results(const std::string& folder);

// Before anything is measured: can rows be stored in `folder`? A line that was cut off there is removed, and
// that is said on stderr.
void prepare_results(const std::string& folder);

// "2026-11-20T14:03:07Z"
std::string utc_now();

}  // namespace kiln
