// The last calls of a communicator, always recorded, and written to disk when one fails: which call each rank
// was in, and the calls before it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "dist/comm/comm_call.h"

namespace kiln {

struct FlightCall {
  Collective collective = Collective::barrier;
  std::string subject;
  DType dtype = DType::f32;
  int64_t count = 0;
  uint64_t sequence = 0;
  const char* state = "";                      // done, failed, running, queued
  int64_t queued = 0, started = 0, ended = 0;  // nanoseconds of the steady clock; 0: not yet
};

struct FlightOwner {
  std::string transport;
  int rank = 0, world = 1;
  std::string failure;
};

class FlightRecord {
 public:
  static constexpr std::size_t kCalls = 1000;

  void add(FlightCall call);
  std::string json(const FlightOwner& owner) const;

 private:
  std::deque<FlightCall> calls_;
};

}  // namespace kiln
