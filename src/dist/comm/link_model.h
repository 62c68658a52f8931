// A simulated link between ranks: each call takes at least as long as it would on it. Put under the
// `threads` transport it makes a virtual cluster of one machine: the data is real, the delay simulated.
#pragma once

#include <string>
#include <string_view>

#include "dist/comm/comm_call.h"

namespace kiln {

enum class CommAlgorithm : uint8_t {
  direct,     // the transport's own
  ring,       // by hand: N-1 steps of 1/N of the tensor, all-reduce and broadcast twice that
  alternate,  // by hand, all-reduce only: the whole tensor goes round in N-1 steps
};
std::string_view name_of(CommAlgorithm a);
CommAlgorithm parse_comm_algorithm(std::string_view text, std::string_view what);

struct LinkModel {
  double latency = 0;    // seconds per message, besides its bytes
  double bandwidth = 0;  // bytes a second that a rank sends, and receives at the same time

  // "latency=20us,bandwidth=10GB/s". Throws Error(usage); `what` opens it ("--link").
  static LinkModel parse(std::string_view text, std::string_view what);
  std::string str() const;
};

// How long `call` takes on the link from the moment all ranks have come (link_cost.cpp derives it).
double link_seconds(const LinkModel& link, CommAlgorithm algorithm, const CommCall& call, int world);

}  // namespace kiln
