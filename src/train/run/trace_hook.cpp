#include "train/run/trace_hook.h"

#include <utility>

#include "autograd/rank_context.h"
#include "dist/comm/communicator.h"

namespace kiln {

TraceHook::TraceHook(RankContext& ctx, Communicator* comm, StepRange range, Deliver deliver)
    : ctx_(ctx), comm_(comm), range_(range), deliver_(std::move(deliver)) {}

void TraceHook::before_step(int64_t step) {
  if (!is_traced(step) || !deliver_) return;
  if (!tracer_) {  // a resumed run may begin inside the range
    const bool gpu = ctx_.device().type == DeviceType::cuda;
    tracer_.emplace(ctx_, gpu ? OpTracer::Clock::marks : OpTracer::Clock::host);
    tracer_->attach();
    if (comm_ != nullptr) comm_->start_recording();
    trace_.first_step = step;
  }
  tracer_->begin_step();
}

void TraceHook::after_step(int64_t step) {
  if (!tracer_ || !is_traced(step)) return;
  trace_.steps.push_back(tracer_->end_step());
  if (step == range_.last) finish();
}

void TraceHook::finish() {
  if (!tracer_) return;
  tracer_.reset();
  if (comm_ != nullptr) {
    trace_.calls = comm_->take_records(ctx_);
    comm_->stop_recording();
  }
  const RunTrace done = std::exchange(trace_, {});
  if (!done.steps.empty()) deliver_(done);
}

}  // namespace kiln
