#include "studies/step/row_clock.h"

#include <algorithm>

#include "autograd/region.h"
#include "perf/timing/queued_timing.h"
#include "train/run/tuned.h"

namespace kiln {
namespace {

using Clock = RowClock::Clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Timing timing_of(std::vector<double> samples, int warmups) {
  Timing t = summarize(std::move(samples));
  t.warmups = warmups;
  return t;
}

}  // namespace

// Collects the phases of steps that are waited for one by one.
class PhaseSamples {
 public:
  explicit PhaseSamples(RankContext& ctx) : times_(ctx) {}

  void begin() {
    begun_ = Clock::now();  // first: a pause between the two belongs to the host, not to a phase
    times_.begin_step();
  }
  void end(bool counts) {
    const std::array<double, kStepPhases> seconds = times_.end_step();
    const double host = seconds_since(begun_);
    if (!counts) return;
    host_.push_back(host);
    for (std::size_t p = 0; p < seconds.size(); ++p) samples_[p].push_back(seconds[p]);
  }
  PhaseTimings take(StepMode mode, int warmups, bool captured) const {
    PhaseTimings t;
    for (std::size_t p = 0; p <= static_cast<std::size_t>(mode); ++p)  // a mode ends with its own phase
      t.phases[p] = timing_of(samples_[p], warmups);
    t.host = timing_of(host_, warmups);
    t.captured = captured;
    return t;
  }

 private:
  PhaseTimes times_;
  Clock::time_point begun_;
  std::array<std::vector<double>, kStepPhases> samples_;
  std::vector<double> host_;
};

// On the CPU, where a step is done when its call returns, the phases are timed on the way.
RowClock::RowClock(const BenchStepRequest& request, const RankOptions& rank, OutOfMemory& full, StepRow& row,
                   Clock::time_point begun)
    : request_(request), row_(row), begun_(begun), ctx_(rank) {
  ctx_.allocator().add_observer(&full);
  if (request.tuning) use_tuning(ctx_, *request.tuning);
  if (request.device.type == DeviceType::cpu) phases_ = std::make_unique<PhaseSamples>(ctx_);
  step_ = std::make_unique<SyntheticStep>(ctx_, row.spec);
  marks_ = std::make_unique<StreamMarks>(ctx_);
}

RowClock::~RowClock() = default;

void RowClock::step(bool counts) {
  throw_if_stopped(request_.stop);
  marks_->mark();
  if (phases_) phases_->begin();
  step_->run();
  if (phases_) phases_->end(counts);
  const int i = count_++;
  if (i == 0) {
    row_.first_loss = step_->finish();
    row_.first = row_.first_eager = seconds_since(begun_);
  } else if (i == 1 && row_.spec.step.graph) {  // captured, and run as a graph for the first time
    step_->finish();
    row_.first = seconds_since(begun_);
  }
}

void RowClock::warm_up() {
  for (int i = 0; i < request_.warmups; ++i) step(/*counts=*/false);
}

void RowClock::time(int steps, bool after_others) {
  // A GPU that stands idle would count the launch of the first step, which the others hide behind each other.
  if (after_others && request_.device.type == DeviceType::cuda) step(/*counts=*/false);
  const std::size_t begin = marks_->size();
  const auto from = Clock::now();
  for (int i = 0; i < steps; ++i) step(/*counts=*/true);
  marks_->mark();
  wall_ += seconds_since(from);
  timed_ += steps;
  for (std::size_t at = begin; at < begin + static_cast<std::size_t>(steps); ++at)
    samples_.push_back(marks_->ms_between(at, at + 1) / 1e3);
}

void RowClock::finish() {
  row_.wall = wall_ / std::max(1, timed_);
  row_.last_loss = step_->finish();
  const double first = marks_->ms_between(0, 1) / 1e3;
  row_.timing = timing_of(std::move(samples_), request_.warmups);
  row_.timing.first = first;
  row_.captured = step_->captured();
  if (phases_) row_.phases = phases_->take(row_.spec.mode, request_.warmups, false);
  phases_.reset();
  step_.reset();
  marks_.reset();
  row_.measured = ctx_.allocator().stats();
  row_.compile_seconds = compile_seconds(ctx_);
  if (row_.phases) return;
  try {
    time_phases();
  } catch (const Error& error) {  // the row is valid without them
    row_.why_no_phases = error.what();
  }
}

// A run of its own: the steps before it were queued behind each other, here each is waited for.
void RowClock::time_phases() {
  StepSpec spec = row_.spec;
  // A graph that is replayed for every later micro-step passes the same marks each time.
  spec.step.graph = spec.step.graph && spec.step.micro_steps == 1;
  PhaseSamples phases(ctx_);
  SyntheticStep step(ctx_, spec);
  const int warmups = std::max(request_.warmups, spec.step.graph ? 2 : 0);
  for (int i = 0; i < warmups + request_.steps; ++i) {
    throw_if_stopped(request_.stop);
    phases.begin();
    step.run();
    phases.end(i >= warmups);
  }
  step.finish();
  row_.phases = phases.take(spec.mode, warmups, step.captured());
}

}  // namespace kiln
