#include "perf/overlap_recorder.h"

#include <algorithm>

#include "perf/step_phase.h"

namespace kiln {

OverlapRecorder::OverlapRecorder(RankContext& ctx, Communicator& comm) : ctx_(ctx), comm_(comm) {
  comm.start_recording();
  ctx.add_observer(this);
}

OverlapRecorder::~OverlapRecorder() { ctx_.remove_observer(this); }

void OverlapRecorder::begin_step() {
  ctx_.synchronize();
  (void)comm_.take_records(ctx_);
  ledger_ = {};
  started_.clear();
  gathers_.clear();
  in_backward_ = false;
  begin_ = steady_ns();
}

void OverlapRecorder::on_gradient(const Param& p, int64_t bytes, int64_t at) {
  ledger_.gradients.push_back({p.name, bytes, p.offset, us(at)});
}

void OverlapRecorder::on_start(const Bucket& b, int64_t at) {
  double ready = 0;
  bool told = false;
  // Newest first: with several micro-steps a gradient is told once for each.
  for (const Param* p : b.params) {
    const auto found = std::find_if(ledger_.gradients.rbegin(), ledger_.gradients.rend(),
                                    [&](const ReadyGradient& g) { return g.offset == p->offset; });
    if (found == ledger_.gradients.rend()) continue;
    ready = std::max(ready, found->ready);
    told = true;
  }
  started_.push_back({b.name, told ? ready : us(at)});
}

void OverlapRecorder::on_gather(const GatherRecord& r) {
  gathers_.push_back({std::string(r.weight), std::string(name_of(r.phase)), r.bytes, r.ahead, us(r.queued),
                      us(r.wanted), us(r.ready)});
  if (!r.in_time()) on_wait(r.wanted, r.ready);
}

void OverlapRecorder::on_wait(int64_t begin, int64_t end) { ledger_.waits.push_back({us(begin), us(end)}); }

void OverlapRecorder::on_finish(int64_t begin, int64_t end) {
  ledger_.backward_end = us(begin);
  ledger_.sums_end = us(end);
}

void OverlapRecorder::on_op_begin(RankContext& ctx, const OpEvent&) {
  const StepPhase phase = phase_of(ctx);
  // For strategies that do not say themselves when they begin to wait.
  if (phase == StepPhase::update && ledger_.backward_end == 0)
    ledger_.backward_end = ledger_.sums_end = us(steady_ns());
  if (in_backward_ || phase != StepPhase::backward) return;
  in_backward_ = true;
  ledger_.backward_begin = us(steady_ns());
}

OverlapLedger OverlapRecorder::end_step() {
  ctx_.synchronize();
  ledger_.end = us(steady_ns());
  std::size_t next = 0;
  for (const CommRecord& r : comm_.take_records(ctx_)) {
    LedgerEntry e;
    e.name = r.subject;
    e.collective = name_of(r.collective);
    e.bytes = r.bytes;
    e.bucket = next < started_.size() && r.subject == started_[next].name;
    e.ready = e.bucket ? started_[next++].ready : us(r.queued);
    e.start = us(r.started);
    e.end = us(r.ended);
    ledger_.entries.push_back(std::move(e));
  }
  judge_entries(ledger_);
  return std::move(ledger_);
}

void ComputeAlone::attach(ParamStore& params) {
  params.set_hooks(this);
  element_ = static_cast<int64_t>(std::min(size_of(params.grads().dtype()), size_of(wire_)));
}

void ComputeAlone::grad_ready(Param& p) {
  if (observer_ != nullptr && p.trainable) observer_->on_gradient(p, p.padded * element_, steady_ns());
}

void ComputeAlone::finish_gradients() {
  const int64_t now = observer_ != nullptr ? steady_ns() : 0;
  if (observer_ != nullptr) observer_->on_finish(now, now);
}

}  // namespace kiln
