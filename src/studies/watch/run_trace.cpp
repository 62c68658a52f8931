#include "studies/watch/run_trace.h"

#include "base/error.h"
#include "report/export/step_timeline.h"
#include "report/html/timeline_html.h"

namespace kiln {

std::vector<std::string> write_run_trace(const std::string& run, const RunTrace& trace) {
  const int64_t last = trace.first_step + static_cast<int64_t>(trace.steps.size()) - 1;
  const std::string steps = last == trace.first_step ? cat(last) : cat(trace.first_step, "-", last);
  const Timeline timeline = step_timeline(trace.steps, cat("kiln train ", run, ", steps ", steps),
                                          {.rank = 0, .first_step = trace.first_step, .calls = trace.calls});
  const std::string path = cat(run, "/steps-", steps, ".trace.json");
  const std::string page = write_timeline_files(timeline, path);
  return {page, path};
}

}  // namespace kiln
