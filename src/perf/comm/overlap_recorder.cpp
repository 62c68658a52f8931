#include "perf/comm/overlap_recorder.h"

#include <algorithm>

#include "device/record_now.h"
#include "perf/trace/step_phase.h"

namespace kiln {

OverlapRecorder::OverlapRecorder(RankContext& ctx, Communicator& comm) : ctx_(ctx), comm_(comm) {
  comm.start_recording();
  ctx.add_observer(this);
}

OverlapRecorder::~OverlapRecorder() { ctx_.remove_observer(this); }

OverlapRecorder::Moment OverlapRecorder::mark() {
  if (used_ == marks_.size()) marks_.push_back(ctx_.backend().make_timing_event());
  marks_[used_]->record(ctx_.compute());
  return used_++;
}

double OverlapRecorder::us(Moment m) const {
  return us_of_host(clock_ns_ + static_cast<int64_t>(1e6 * marks_[m]->elapsed_ms(*clock_)));
}

void OverlapRecorder::prepare_step() {
  ctx_.synchronize();
  (void)comm_.take_records(ctx_);
  comm_.start_recording();  // again: the clocks of host and device drift apart
  clock_ = ctx_.backend().make_timing_event();
  clock_ns_ = steady_ns(record_now(ctx_.backend(), *clock_, ctx_.compute()));
  prepared_ = true;
}

void OverlapRecorder::begin_step() {
  if (!prepared_) prepare_step();
  prepared_ = false;
  ledger_ = {};
  gradients_.clear();
  started_.clear();
  waits_.clear();
  gathered_.clear();
  gathers_.clear();
  backward_begin_ = backward_end_ = sums_end_ = std::nullopt;
  used_ = 0;
  begin_ns_ = steady_ns();
}

void OverlapRecorder::on_gradient(const Param& p, int64_t bytes) {
  const Moment now = mark();
  gradients_.push_back({{p.name, bytes, p.offset, 0}, now});
}

void OverlapRecorder::on_start(const Bucket& b) {
  std::optional<Moment> ready;
  // Newest first: with several micro-steps a gradient is reported once for each.
  for (const Param* p : b.params) {
    const auto found = std::find_if(gradients_.rbegin(), gradients_.rend(),
                                    [&](const Gradient& g) { return g.what.offset == p->offset; });
    if (found != gradients_.rend()) ready = std::max(ready.value_or(0), found->ready);
  }
  started_.push_back({b.name, ready ? *ready : mark()});
}

void OverlapRecorder::on_gather(const GatherRecord& r) {
  GatherUse use;
  use.weight = r.weight;
  use.phase = name_of(r.phase);
  use.bytes = r.bytes;
  use.ahead = r.ahead;
  gathered_.push_back({std::move(use), wanted_, r.sequence});
}

void OverlapRecorder::on_op_begin(RankContext& ctx, const OpEvent&) {
  const StepPhase phase = phase_of(ctx);
  // For strategies that do not say themselves when they begin to wait.
  if (phase == StepPhase::update && !backward_end_) backward_end_ = sums_end_ = mark();
  if (!backward_begin_ && phase == StepPhase::backward) backward_begin_ = mark();
}

// A weight is ready when its gather was over, wherever compute was by then.
void OverlapRecorder::tell_gathers(const std::map<uint64_t, CommRecord>& records) {
  for (Gathered& g : gathered_) {
    const auto call = records.find(g.sequence);
    if (call == records.end()) continue;  // gathered before the step
    g.what.queued = us_of_host(call->second.queued);
    g.what.ready = us_of_host(call->second.ended);
    g.what.wanted = us(g.wanted);
    if (!g.what.in_time()) ledger_.waits.push_back({g.what.wanted, g.what.ready});
    gathers_.push_back(std::move(g.what));
  }
}

OverlapLedger OverlapRecorder::end_step() {
  ctx_.synchronize();
  ledger_.end = us_of_host(steady_ns());
  ledger_.backward_begin = us(backward_begin_);
  ledger_.backward_end = us(backward_end_);
  ledger_.sums_end = us(sums_end_);
  for (Gradient& g : gradients_) {
    g.what.ready = us(g.ready);
    ledger_.gradients.push_back(std::move(g.what));
  }
  for (const Wait& w : waits_) {
    if (w.end) ledger_.waits.push_back({us(w.begin), us(*w.end)});
  }
  std::size_t next = 0;
  std::map<uint64_t, CommRecord> by_sequence;
  for (CommRecord& r : comm_.take_records(ctx_)) {
    if (r.ended < begin_ns_) continue;  // the barrier of all ranks before the step
    LedgerEntry e;
    e.name = r.subject;
    e.collective = name_of(r.collective);
    e.bytes = r.bytes;
    e.bucket = next < started_.size() && r.subject == started_[next].name;
    e.ready = e.bucket ? us(started_[next++].ready) : us_of_host(r.queued);
    e.start = us_of_host(r.started);
    e.end = us_of_host(r.ended);
    ledger_.entries.push_back(std::move(e));
    by_sequence.emplace(r.sequence, std::move(r));
  }
  tell_gathers(by_sequence);
  check_entries(ledger_);
  return std::move(ledger_);
}

void ComputeAlone::attach(ParamStore& params) {
  params.set_hooks(this);
  element_ = static_cast<int64_t>(std::min(size_of(params.grads().dtype()), size_of(wire_)));
}

void ComputeAlone::grad_ready(Param& p) {
  if (observer_ != nullptr && p.trainable) observer_->on_gradient(p, p.padded * element_);
}

void ComputeAlone::finish_gradients() {
  if (observer_ == nullptr) return;
  observer_->on_finish_begin();
  observer_->on_finish_end();
}

}  // namespace kiln
