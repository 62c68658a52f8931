#include "dist/comm/flight_record.h"
#include "base/json.h"

namespace kiln {

void FlightRecord::add(FlightCall call) {
  if (calls_.size() == kCalls) calls_.pop_front();
  calls_.push_back(std::move(call));
}

std::string FlightRecord::json(const FlightOwner& owner) const {
  Json calls = Json::array();
  for (const FlightCall& c : calls_) {
    calls.push_back({{"sequence", c.sequence},
                     {"collective", name_of(c.collective)},
                     {"subject", c.subject},
                     {"count", c.count},
                     {"dtype", name_of(c.dtype)},
                     {"bytes", c.count * static_cast<int64_t>(size_of(c.dtype))},
                     {"state", c.state},
                     {"queued_ns", c.queued},
                     {"started_ns", c.started},
                     {"ended_ns", c.ended}});
  }
  const Json document = {{"transport", owner.transport},
                         {"rank", owner.rank},
                         {"world", owner.world},
                         {"failure", owner.failure},
                         {"calls", std::move(calls)}};
  // Subjects are parameter names; what is not UTF-8 in them must not cost the record.
  return document.dump(1) + "\n";
}

}  // namespace kiln
