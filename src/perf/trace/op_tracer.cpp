#include "perf/trace/op_tracer.h"

#include <algorithm>

#include "base/error.h"

namespace kiln {
namespace {

double steady_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The callers of an op that say something: not those of the tracer, the dispatcher and the tape's loop.
std::string origin_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 4;
  constexpr std::string_view kBetween[] = {"CallStack::", "OpTracer::",   "announce",         "watched",
                                           "OpCall",      "BackwardCall", "CapturedRegion::", "cli::"};
  std::string text;
  std::size_t kept = 0;
  for (const std::string& name : names) {
    const bool between = std::any_of(std::begin(kBetween), std::end(kBetween),
                                     [&](std::string_view s) { return name.rfind(s, 0) == 0; });
    if (between || kept == kMost) continue;
    text += (kept++ == 0 ? "" : " < ") + name;
  }
  return text;
}

TraceSpan span_of(const TracedOp& op, int index, TraceLane lane) {
  return {lane,  group_of_op(op.op), cat(op.op, " ", op.variant, op.backward ? " backward" : ""),
          index, op.begin_us,        op.end_us};
}

}  // namespace

OpTracer::OpTracer(RankContext& ctx, Clock clock, Now now)
    : ctx_(ctx), clock_(clock), now_(now ? std::move(now) : Now(steady_us)) {
  if (clock_ == Clock::marks) marks_.emplace(ctx);
}

OpTracer::~OpTracer() { detach(); }

void OpTracer::attach() {
  if (attached_) return;
  attached_ = true;
  ctx_.add_observer(this);
  ctx_.allocator().add_observer(this);
}

void OpTracer::detach() {
  if (!attached_) return;
  attached_ = false;
  ctx_.remove_observer(this);
  ctx_.allocator().remove_observer(this);
}

void OpTracer::begin_step() {
  // What the last step needed is what this one will need: no growing inside it.
  const std::size_t ops = trace_.ops.size(), points = trace_.memory.size();
  trace_ = {};
  trace_.ops.reserve(ops);
  trace_.memory.reserve(points);
  memory_at_op_.clear();
  if (stacks_) stacks_->clear();
  depth_ = 0;
  live_ = ctx_.allocator().stats().live_total;
  if (marks_) {
    marks_->clear();
    marks_->mark();
  }
  trace_.begin_us = now_();
  trace_.memory.push_back({trace_.begin_us, live_});
  memory_at_op_.push_back(0);
}

void OpTracer::on_op_begin(RankContext& ctx, const OpEvent& e) {
  if (depth_++ > 0) return;
  trace_.ops.push_back({std::string(e.op),
                        std::string(e.variant),
                        std::string(e.scope),
                        phase_of(ctx),
                        e.pass == Pass::backward,
                        e.recomputed && e.pass == Pass::forward,
                        e.cost,
                        0,
                        0,
                        {}});
  if (stacks_) stacks_->push_back(CallStack::here());
  if (marks_) marks_->mark();
  trace_.ops.back().begin_us = now_();
}

void OpTracer::on_op_end(RankContext&, const OpEvent&) {
  if (--depth_ > 0) return;
  trace_.ops.back().end_us = now_();
  if (marks_) marks_->mark();
}

void OpTracer::on_alloc_event(const AllocEvent& e) {
  if (e.kind == AllocEvent::Kind::alloc) {
    live_ += e.bytes;
  } else if (e.kind == AllocEvent::Kind::free) {
    live_ -= std::min(live_, e.bytes);
  } else {
    return;
  }
  trace_.memory.push_back({now_(), live_});
  memory_at_op_.push_back(static_cast<int>(trace_.ops.size()));
}

Trace OpTracer::end_step() {
  trace_.end_us = now_();
  if (marks_) {
    read_marks();
    place_memory(trace_, memory_at_op_);
  } else if (ctx_.device().type != DeviceType::cuda) {
    for (std::size_t i = 0; i < trace_.ops.size(); ++i)
      trace_.spans.push_back(span_of(trace_.ops[i], static_cast<int>(i), TraceLane::cpu));
  }
  if (stacks_) {
    const FunctionNames names;
    for (std::size_t i = 0; i < trace_.ops.size(); ++i)
      trace_.ops[i].origin = origin_of(names.of((*stacks_)[i]));
  }
  return trace_;
}

// The first mark is the step's beginning, then two for each op, and one for the end.
void OpTracer::read_marks() {
  marks_->mark();
  for (std::size_t i = 0; i < trace_.ops.size(); ++i) {
    TraceSpan span = span_of(trace_.ops[i], static_cast<int>(i), TraceLane::gpu);
    span.begin_us = trace_.begin_us + 1e3 * marks_->ms_between(0, 1 + 2 * i);
    span.end_us = trace_.begin_us + 1e3 * marks_->ms_between(0, 2 + 2 * i);
    trace_.spans.push_back(std::move(span));
  }
  trace_.end_us = trace_.begin_us + 1e3 * marks_->ms_between(0, marks_->size() - 1);
}

void place_memory(Trace& trace, const std::vector<int>& at_op) {
  std::vector<double> begins(trace.ops.size() + 1, trace.end_us);  // of the op's first span, or a later op's
  for (const TraceSpan& s : trace.spans) {
    if (s.op < 0) continue;
    double& begin = begins[static_cast<std::size_t>(s.op)];
    begin = std::min(begin, s.begin_us);
  }
  for (std::size_t i = trace.ops.size(); i-- > 0;) begins[i] = std::min(begins[i], begins[i + 1]);
  for (std::size_t i = 0; i < trace.memory.size(); ++i) {
    const auto op = static_cast<std::size_t>(std::min<int>(at_op[i], static_cast<int>(trace.ops.size())));
    trace.memory[i].at_us = std::max(trace.begin_us, begins[op]);
  }
}

}  // namespace kiln
