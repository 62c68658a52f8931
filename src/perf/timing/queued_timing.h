// Time as the device sees it. A GPU works through a queue; a host that waits for it around every call times
// the launch as well, which for a small kernel is most of it. Here marks are queued among the work and read
// when all of it is done. On the CPU, where calls return when their work is done, a mark is the clock.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "autograd/rank_context.h"
#include "perf/timing/timing.h"

namespace kiln {

// Marks on a rank's compute stream. They are kept and used again after clear().
class StreamMarks {
 public:
  explicit StreamMarks(RankContext& ctx) : ctx_(ctx) {}

  std::size_t mark();                                         // queues one; its number, from 0
  double ms_between(std::size_t from, std::size_t to) const;  // the host waits for `to`
  std::size_t size() const { return used_; }
  void clear() { used_ = 0; }

 private:
  RankContext& ctx_;
  std::vector<std::unique_ptr<TimingEvent>> events_;
  std::size_t used_ = 0;
};

// One round of work: does what is not timed, and hands what is to `timed`, which runs it at once. `calls` is
// how many of the timed kind it holds: a mark drains the device, which costs a kernel of 40 us some 5 %, so
// short calls are better timed as a group.
using TimedCall = std::function<void(const std::function<void()>& work, int calls)>;
using TimedRound = std::function<void(const TimedCall& timed)>;

// As time_work(), by marks: rounds are queued behind a hold, so that the device never waits for the host
// inside a sample.
Timing time_queued(RankContext& ctx, const TimedRound& round, const TimingOptions& options = {});

}  // namespace kiln
