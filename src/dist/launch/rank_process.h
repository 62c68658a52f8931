// What a process that `kiln run` has started does before and after its command.
#pragma once

#include <memory>

#include "base/error.h"
#include "dist/launch/rank_status_page.h"

namespace kiln {

// While it lives, this process is a rank on the launcher's status page, with its stderr on the launcher's
// pipe. Nothing of that where no launcher has started it.
class RankProcess {
 public:
  RankProcess();

  // Leaves the error to the launcher, which reports the first of all ranks' as one line. False: no launcher.
  bool report(const Error& error);

 private:
  std::unique_ptr<RankStatusPage> status_page_;
};

}  // namespace kiln
