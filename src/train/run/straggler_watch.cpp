#include "train/run/straggler_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "dist/launch/rank_agreement.h"

namespace kiln {

std::vector<RankSplit> split_steps(const std::vector<double>& step_ms, const std::vector<double>& blocked_ms,
                                   int64_t steps) {
  const double transfers = *std::min_element(blocked_ms.begin(), blocked_ms.end());
  const auto n = static_cast<double>(steps);
  std::vector<RankSplit> ranks;
  for (std::size_t r = 0; r < step_ms.size(); ++r)
    ranks.push_back({(step_ms[r] - blocked_ms[r]) / n, transfers / n, (blocked_ms[r] - transfers) / n});
  return ranks;
}

std::optional<int> slow_rank(const std::vector<double>& compute_ms) {
  int slowest = 0;
  std::vector<double> others;
  for (std::size_t r = 1; r < compute_ms.size(); ++r) {
    if (compute_ms[r] > compute_ms[static_cast<std::size_t>(slowest)]) slowest = static_cast<int>(r);
  }
  for (std::size_t r = 0; r < compute_ms.size(); ++r) {
    if (static_cast<int>(r) != slowest) others.push_back(compute_ms[r]);
  }
  if (others.empty()) return std::nullopt;
  std::sort(others.begin(), others.end());
  const double median = others[others.size() / 2];
  const double mine = compute_ms[static_cast<std::size_t>(slowest)];
  const bool slow = mine > StragglerWatch::kSlow * median && mine > median + 1;
  return slow ? std::optional(slowest) : std::nullopt;
}

double StragglerWatch::blocked_ms() const {
  int64_t ns = 0;
  for (const Communicator* c : calls_) ns += c->blocked_ns();
  return static_cast<double>(ns) / 1e6;
}

void StragglerWatch::before_step(int64_t) {
  begin_ = std::chrono::steady_clock::now();
  blocked_begin_ = blocked_ms();
}

void StragglerWatch::after_step(int64_t step) {
  if (!std::exchange(warm_, true)) return;
  const double took =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin_).count();
  const double blocked = blocked_ms() - blocked_begin_;
  step_ms_ += took;
  blocked_ms_ += blocked;
  fastest_ms_ = steps_ == 0 ? took - blocked : std::min(fastest_ms_, took - blocked);
  if (++steps_ == kWindow) compare(step);
}

void StragglerWatch::compare(int64_t step) {
  const double mine[] = {step_ms_, blocked_ms_, fastest_ms_};
  std::vector<double> step_ms, blocked, fastest;
  for (const auto& rank : all_gather_numbers(ctx_, all_, mine, "times of ranks")) {
    step_ms.push_back(rank.at(0));
    blocked.push_back(rank.at(1));
    fastest.push_back(rank.at(2));
  }
  const std::vector<RankSplit> ranks = split_steps(step_ms, blocked, steps_);
  step_ms_ = blocked_ms_ = 0;
  steps_ = 0;
  const int slow = slow_rank(fastest).value_or(-1);
  if (slow != slow_) told_ = false;
  in_row_ = slow == slow_ ? in_row_ + 1 : 1;
  slow_ = slow;
  if (slow < 0 || in_row_ < kWindows || told_) return;
  told_ = true;
  std::string line = fmt::format(
      "rank {} is slow: after step {}, compute/comm/wait a step over {} steps:", slow, step, kWindow);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    line += fmt::format("{} rank {} {:.1f}/{:.1f}/{:.1f} ms", r == 0 ? "" : ",", r, ranks[r].compute_ms,
                        ranks[r].comm_ms, ranks[r].wait_ms);
  tell_(line);
}

}  // namespace kiln
