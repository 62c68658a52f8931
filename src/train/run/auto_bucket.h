// --bucket-mb auto: the size predicted from the link.
#pragma once

#include <string>

#include "train/run/train.h"

namespace kiln {

struct AutoBucket {
  double mb = 0;
  std::string why;  // "0.52 MB: sums cost ... by the modelled link"
};

// From --link, or from rows of `bench allreduce` next to the run. Throws Error(unavailable) where there is
// neither: a guess would look like a prediction.
AutoBucket auto_bucket(const TrainRequest& request, int64_t parameters);

}  // namespace kiln
