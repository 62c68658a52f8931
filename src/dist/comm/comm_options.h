// How a communicator behaves, whatever carries it.
#pragma once

#include <chrono>

namespace kiln {

struct CommOptions {
  // How long a rank waits for the others in one call before it gives up and says who is missing.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
};

}  // namespace kiln
