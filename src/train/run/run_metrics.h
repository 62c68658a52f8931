// A run's figures on disk, for other programs: metrics.jsonl, a line a step or evaluation, and TensorBoard's
// events next to it. A full disk does not end the training: it is reported once, and again at the end.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rows/metrics_log.h"
#include "rows/tensorboard.h"
#include "train/run/train_loop.h"

namespace kiln {

class RunMetrics final : public RunListener {
 public:
  // `folder` is the run's; lines of steps up to `last_step` are kept.
  RunMetrics(const std::string& folder, int64_t last_step, std::function<void(const std::string&)> warn);

  static std::string path_in(const std::string& folder) { return folder + "/metrics.jsonl"; }
  const std::vector<double>& kept_losses() const { return lines_.kept_losses(); }
  bool complete() const { return complete_; }

  void on_step(const StepReport& report) override;
  void on_evaluation(int64_t step, const Evaluation& e) override;

 private:
  using Clock = std::chrono::steady_clock;
  void add_event(int64_t step, std::string_view tag, double value);
  template <class Write>
  void keep_going(Write write);

  MetricsLog lines_;
  EventFile events_;
  std::function<void(const std::string&)> warn_;
  bool complete_ = true;
  Clock::time_point last_flush_;
};

}  // namespace kiln
