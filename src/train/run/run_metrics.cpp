#include "train/run/run_metrics.h"

#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "train/run/train_setup.h"

namespace kiln {

RunMetrics::RunMetrics(const std::string& folder, int64_t last_step,
                       std::function<void(const std::string&)> warn)
    : lines_(path_in(folder), last_step), events_(folder), warn_(std::move(warn)) {}

void RunMetrics::on_step(const StepReport& r) {
  Json line = {{"step", r.step},
               {"loss", r.loss},
               {"lr", r.lr},
               {"grad_norm", r.grad_norm},
               {"clip", r.clip},
               {"loss_scale", r.loss_scale},
               {"skipped", r.skipped},
               {"seconds", r.seconds},
               {"tokens", r.tokens},
               {"host_wait_ms", r.host_wait_ms},
               {"at", seconds_since_1970()},
               {"peak_bytes", r.peak_bytes}};
  if (r.stall_ms) line["stall_ms"] = *r.stall_ms;
  keep_going([&] { lines_.append(line.dump()); });
  add_event(r.step, "train/loss", r.loss);
  add_event(r.step, "train/lr", r.lr);
  add_event(r.step, "train/grad_norm", r.grad_norm);
  if (r.seconds > 0) add_event(r.step, "train/tokens_per_s", static_cast<double>(r.tokens) / r.seconds);
}

void RunMetrics::on_evaluation(int64_t step, const Evaluation& e) {
  const Json line = {{"step", step}, {"validation_loss", e.loss}, {"tokens", e.tokens}};
  keep_going([&] { lines_.append(line.dump()); });
  add_event(step, "validation/loss", e.loss);
}

// In batches: a write a second is often enough for a chart.
void RunMetrics::add_event(int64_t step, std::string_view tag, double value) {
  keep_going([&] { events_.add(step, tag, value); });
  const auto now = Clock::now();
  if (now - last_flush_ < std::chrono::seconds(1)) return;
  last_flush_ = now;
  keep_going([&] { events_.flush(); });
}

template <class Write>
void RunMetrics::keep_going(Write write) {
  try {
    write();
  } catch (const Error& e) {
    if (std::exchange(complete_, false)) warn_(cat(e.what(), ": it will lack lines; ", e.hint()));
  }
}

}  // namespace kiln
