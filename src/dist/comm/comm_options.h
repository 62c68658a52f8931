// How a communicator behaves, whatever carries it.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "dist/comm/link_model.h"

namespace kiln {

struct CommOptions {
  // How long a rank waits for the others in one call before it gives up and says who is missing.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  CommAlgorithm algorithm = CommAlgorithm::direct;
  std::optional<LinkModel> link{};  // calls take as long as on such a link, at least
  std::string flight_folder{};      // where the last calls are written when one fails; empty: nowhere
};

}  // namespace kiln
