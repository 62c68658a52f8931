// Tells when one rank computes more slowly than the others, who then wait for it in every collective: a run
// is as fast as its slowest rank, and nothing else shows which that is.
//
// Each rank knows how long a step took it and how much of that it stood in collectives. They exchange both
// every few steps. What the rank that waited least has stood is what the transfers cost all of them; what
// others stood beyond it they waited for late ranks; the rest is compute.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dist/comm/communicator.h"
#include "train/step_hook.h"

namespace kiln {

struct RankSplit {
  double compute_ms = 0, comm_ms = 0, wait_ms = 0;  // a step
};

// From each rank's time in steps and, of it, in collectives, in ms over `steps` steps.
std::vector<RankSplit> split_steps(const std::vector<double>& step_ms, const std::vector<double>& blocked_ms,
                                   int64_t steps);
// The rank that computes kSlow times as long as the median of the others, and a millisecond longer. Of each
// rank its fastest step in a window: on a busy machine any rank may lose some steps to other programs, and a
// slow rank is slow in all.
std::optional<int> slow_rank(const std::vector<double>& compute_ms);

class StragglerWatch final : public StepHook {
 public:
  static constexpr int64_t kWindow = 5;  // steps between two exchanges
  static constexpr int kWindows = 3;     // in a row with the same slow rank, until it is told
  static constexpr double kSlow = 1.5;

  // `calls`: the communicators whose calls a step waits for. `tell` is called on every rank.
  StragglerWatch(RankContext& ctx, Communicator& all, std::vector<const Communicator*> calls,
                 std::function<void(const std::string&)> tell)
      : ctx_(ctx), all_(all), calls_(std::move(calls)), tell_(std::move(tell)) {}

  void before_step(int64_t step) override;
  void after_step(int64_t step) override;

 private:
  double blocked_ms() const;
  void compare(int64_t step);

  RankContext& ctx_;
  Communicator& all_;
  std::vector<const Communicator*> calls_;
  std::function<void(const std::string&)> tell_;
  std::chrono::steady_clock::time_point begin_;
  double blocked_begin_ = 0;
  double step_ms_ = 0, blocked_ms_ = 0;  // of this window
  double fastest_ms_ = 0;                // compute, of its fastest step
  int64_t steps_ = 0;
  bool warm_ = false;  // the first step of a process also warms everything up
  int slow_ = -1, in_row_ = 0;
  bool told_ = false;  // of this slow rank
};

}  // namespace kiln
