#include "perf/timing/queued_timing.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostInAGroup = 16;  // of samples queued at once: some ten entries each, of about 1000
constexpr double kGroupSeconds = 0.02;
constexpr double kLongestHold = 0.1;  // seconds; a host this slow is no longer the small kernel's problem

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

std::size_t StreamMarks::mark() {
  if (used_ == events_.size()) events_.push_back(ctx_.backend().make_timing_event());
  events_[used_]->record(ctx_.compute());
  return used_++;
}

double StreamMarks::ms_between(std::size_t from, std::size_t to) const {
  return events_[to]->elapsed_ms(*events_[from]);
}

Timing time_queued(RankContext& ctx, const TimedRound& round, const TimingOptions& o) {
  const Clock::time_point begin = Clock::now();
  StreamMarks marks(ctx);
  std::vector<int> calls;  // between marks 2i and 2i + 1
  const TimedCall timed = [&](const std::function<void()>& work, int count) {
    marks.mark();
    work();
    marks.mark();
    calls.push_back(count);
  };
  std::vector<double> group;                    // seconds of a call, each between two marks
  double device_seconds = 0, host_seconds = 0;  // of one round, in the last group
  auto run_rounds = [&](int rounds, double hold) {
    throw_if_stopped(o.stop);
    marks.clear();
    calls.clear();
    ctx.synchronize();
    if (hold > 0) ctx.backend().hold(ctx.compute(), hold);
    const Clock::time_point queued = Clock::now();
    for (int i = 0; i < rounds; ++i) round(timed);
    host_seconds = seconds_since(queued) / rounds;
    group.clear();
    device_seconds = 0;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const double seconds = marks.ms_between(2 * i, 2 * i + 1) / 1e3;
      device_seconds += seconds / rounds;
      group.push_back(seconds / calls[i]);
    }
    if (group.empty()) throw Error("a round of work timed nothing");
  };

  run_rounds(1, 0);
  const double first = group.front();
  int warmups = 1;
  std::vector<double> samples;
  double sampled = 0;
  if (seconds_since(begin) > o.max_seconds) {  // too slow to do again
    samples = group;
    warmups = 0;
  } else {
    for (; warmups < o.warmups && seconds_since(begin) < o.max_seconds / 4; ++warmups) run_rounds(1, 0);
    while (static_cast<int>(samples.size()) < o.max_samples) {
      const bool enough = static_cast<int>(samples.size()) >= o.min_samples && sampled >= o.min_seconds;
      if (enough || (!samples.empty() && seconds_since(begin) >= o.max_seconds)) break;
      const int wanted = std::min(kMostInAGroup, o.max_samples - static_cast<int>(samples.size()));
      const int most = std::max(1, wanted / static_cast<int>(group.size()));
      const int rounds =
          std::clamp(static_cast<int>(kGroupSeconds / std::max(1e-6, device_seconds)), 1, most);
      run_rounds(rounds, std::min(kLongestHold, 1.5 * host_seconds * rounds + 2e-4));
      samples.insert(samples.end(), group.begin(), group.end());
      sampled += device_seconds * rounds;
    }
  }
  Timing t = summarize(std::move(samples));
  t.warmups = warmups;
  t.first = first;
  return t;
}

}  // namespace kiln
