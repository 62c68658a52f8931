// The terminal view of a training run: the plan, a line per step, the curve. On stderr, so that stdout stays
// the result's.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "train/run/train.h"

namespace kiln::cli {

// What waiting for batches took, over the steps of this process but the first, which warms everything up.
struct InputTimes {
  int64_t steps = 0, measured = 0;  // of the steps, those whose device was measured
  double host = 0, device = 0;      // ms, summed over all steps
  double seconds = 0;               // of the steps themselves
  double host_share() const { return seconds > 0 ? host / 1e3 / seconds : 0; }
  double host_wait_ms() const { return host / static_cast<double>(steps); }  // a step
  std::optional<double> stall_ms() const {
    return measured == 0 ? std::optional<double>() : device / static_cast<double>(measured);
  }
};

class ConsoleView final : public TrainView {
 public:
  ConsoleView();
  ~ConsoleView() override;

  void on_setup(const TrainRequest& request, const TrainSetup& setup) override;
  void on_step(const StepReport& report) override;
  void on_evaluation(int64_t step, const Evaluation& e) override;
  void on_saved(int64_t step, const std::string& checkpoint) override;
  void on_sample_text(int64_t step, const std::string& text) override;
  void on_warning(const std::string& line) override;
  void on_note(const std::string& line) override;
  void on_memory(const MemoryStats& measured) override;
  void on_trace(const RunTrace& trace) override;
  void draw_losses() const;

  const TrainSetup& setup() const { return setup_; }
  const std::optional<Evaluation>& last_evaluation() const { return evaluation_; }
  double tokens_per_second() const;  // without the first step, which also warms everything up
  const InputTimes& input() const { return input_; }
  double of_peak() const;  // model FLOP/s as a part of the measured peak

 private:
  using Clock = std::chrono::steady_clock;
  void print_line(const StepReport& report);
  void keep_loss(double loss);
  void say(const std::string& line);

  bool terminal_, drawn_ = false;
  int64_t steps_ = 0, last_step_ = 0;
  std::string run_;  // its folder
  TrainSetup setup_;
  std::vector<double> losses_;      // of the whole run, where its metrics are there; every one of `every_`
  int64_t every_ = 1, passed_ = 0;  // steps; since the last that was kept
  std::optional<Evaluation> evaluation_;
  double seconds_ = 0;  // of the steps counted in tokens_
  int64_t tokens_ = 0;
  InputTimes input_;
  Clock::time_point last_line_;
};

}  // namespace kiln::cli
