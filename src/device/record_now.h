// An event with the host's clock, so that times of device and host can be compared.
#pragma once

#include <chrono>

#include "device/backend.h"

namespace kiln {

// Records `event` into a stream that has nothing to do, and says when the device passed it: between two looks
// at the host's clock. Where those are far apart, because host or device were busy with something else,
// again.
inline std::chrono::steady_clock::time_point record_now(Backend& backend, TimingEvent& event, Stream stream) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kFar = std::chrono::microseconds(30);
  constexpr int kTries = 10;
  backend.synchronize(stream);
  for (int i = 1;; ++i) {
    const Clock::time_point before = Clock::now();
    event.record(stream);
    backend.synchronize(stream);
    const Clock::time_point after = Clock::now();
    if (after - before < kFar || i == kTries) return before + (after - before) / 2;
  }
}

}  // namespace kiln
