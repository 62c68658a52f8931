// Training runs as rows of a report: of each run's metrics.jsonl the losses, and what they were trained by.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace kiln {

// Of `folder` itself and of every folder in it that has a metrics.jsonl. A line that is not whole, as of a
// run being written, is left out; so is a file that is none.
std::vector<Json> run_rows(const std::string& folder);

}  // namespace kiln
