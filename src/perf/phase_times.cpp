#include "perf/phase_times.h"

#include "perf/op_times.h"

namespace kiln {

std::string_view name_of(StepPart p) {
  constexpr std::array<std::string_view, kStepParts> kNames = {"forward", "backward", "optimizer"};
  return kNames[static_cast<std::size_t>(p)];
}

bool PhaseWatch::advance(const OpEvent& e) {
  const StepPart before = phase_;
  if (e.pass == Pass::backward || e.recomputed) {
    phase_ = StepPart::backward;
  } else if (phase_ == StepPart::backward) {
    const OpClass c = class_of(e.op);
    phase_ = c == OpClass::update || c == OpClass::scalars ? StepPart::update : StepPart::forward;
  }
  return phase_ != before;
}

PhaseTimes::PhaseTimes(RankContext& ctx)
    : ctx_(ctx), begin_(ctx.backend().make_timing_event()), end_(ctx.backend().make_timing_event()) {
  ctx.add_observer(this);
}

PhaseTimes::~PhaseTimes() { ctx_.remove_observer(this); }

void PhaseTimes::begin_step() {
  fresh_ = true;
  begin_->record(ctx_.compute());
}

void PhaseTimes::on_op_begin(RankContext& ctx, const OpEvent& event) {
  if (fresh_) {
    fresh_ = false;
    used_ = 0;
    watch_.begin_step();
  }
  if (!watch_.advance(event)) return;
  if (used_ == marks_.size()) marks_.push_back({ctx.backend().make_timing_event(), StepPart::forward});
  marks_[used_].next = watch_.phase();
  marks_[used_].event->record(ctx.compute());
  ++used_;
}

std::array<double, kStepParts> PhaseTimes::end_step() {
  end_->record(ctx_.compute());
  std::array<double, kStepParts> seconds{};
  const TimingEvent* from = begin_.get();
  StepPart phase = StepPart::forward;
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
