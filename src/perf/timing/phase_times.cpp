#include "perf/timing/phase_times.h"

namespace kiln {

PhaseTimes::PhaseTimes(RankContext& ctx)
    : ctx_(ctx), begin_(ctx.backend().make_timing_event()), end_(ctx.backend().make_timing_event()) {
  ctx.add_observer(this);
}

PhaseTimes::~PhaseTimes() { ctx_.remove_observer(this); }

void PhaseTimes::begin_step() {
  fresh_ = true;
  begin_->record(ctx_.compute());
}

void PhaseTimes::on_op_begin(RankContext& ctx, const OpEvent&) {
  if (fresh_) {
    fresh_ = false;
    used_ = 0;
    phase_ = StepPhase::forward;
  }
  const StepPhase now = phase_of(ctx);
  if (now == phase_) return;
  phase_ = now;
  if (used_ == marks_.size()) marks_.push_back({ctx.backend().make_timing_event(), StepPhase::forward});
  marks_[used_].next = now;
  marks_[used_].event->record(ctx.compute());
  ++used_;
}

std::array<double, kStepPhases> PhaseTimes::end_step() {
  end_->record(ctx_.compute());
  std::array<double, kStepPhases> seconds{};
  const TimingEvent* from = begin_.get();
  StepPhase phase = StepPhase::forward;
  for (std::size_t i = 0; i <= used_; ++i) {
    const TimingEvent* to = i < used_ ? marks_[i].event.get() : end_.get();
    if (i == 0) (void)end_->elapsed_ms(*begin_);  // all of the step is done before any mark inside it is read
    seconds[static_cast<std::size_t>(phase)] += to->elapsed_ms(*from) / 1e3;
    from = to;
    if (i < used_) phase = marks_[i].next;
  }
  return seconds;
}

}  // namespace kiln
