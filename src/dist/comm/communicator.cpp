#include "dist/comm/communicator.h"

#include <algorithm>
#include <exception>

#include "device/record_now.h"
#include "dist/comm/event_passed.h"
#include "dist/comm/ring_transport.h"

namespace kiln {

void CommHandle::wait(RankContext& ctx) const {
  if (!call_) return;
  if (call_->owner != nullptr) call_->owner->follow(ctx, *call_);
  if (call_->error) std::rethrow_exception(call_->error);
}

bool CommHandle::done() const {
  if (!call_ || call_->released || call_->owner == nullptr) return true;
  const Communicator& c = *call_->owner;
  if (!c.queue_->over(*call_)) return false;
  return call_->error || call_->finished.handle == nullptr || event_passed(c.ctx_.backend(), call_->finished);
}

Communicator::Communicator(RankContext& ctx, std::unique_ptr<Transport> transport, const CommOptions& options,
                           std::string label)
    : ctx_(ctx),
      options_(options),
      label_(std::move(label)),
      exceptions_(std::uncaught_exceptions()),
      transport_(std::move(transport)) {
  if (!transport_->is_local()) {
    stream_ = std::make_unique<OwnedStream>(ctx.backend());
    if (options_.algorithm != CommAlgorithm::direct)
      transport_ = make_ring_transport(std::move(transport_), ctx.backend(), options_.algorithm);
  }
  std::string flight;
  if (!options_.flight_folder.empty())
    flight = cat(options_.flight_folder, "/flight-rank", ctx.rank(), "-", label_, ".json");
  queue_ = std::make_unique<CommQueue>(*transport_, ctx.backend(), stream_ ? *stream_ : ctx.compute(),
                                       options_, std::move(flight));
}

Communicator::~Communicator() {
  try {
    if (!in_flight_.empty() && std::uncaught_exceptions() > exceptions_)
      abort("an error ended it in the middle of a collective");
    queue_->stop();
    for (const auto& p : in_flight_) p->owner = nullptr;
    if (!in_flight_.empty()) release_up_to(ctx_, in_flight_.back()->call.sequence);
    scratch_ = {};
    if (stream_) ctx_.backend().synchronize(*stream_);
    // NOLINTNEXTLINE(bugprone-empty-catch): a lost device, reported where it was used
  } catch (const std::exception&) {
  }
}

CommHandle Communicator::queue(RankContext& ctx, CommCall call, const Tensor& in, const Tensor& out,
                               std::function<void()> work) {
  call.in = in.defined() ? in.raw() : nullptr;
  call.out = out.defined() ? out.raw() : nullptr;
  if (!work) need_scratch(ctx, call);
  auto p = std::make_shared<PendingCall>();
  call.sequence = next_++;
  p->call = std::move(call);
  p->work = std::move(work);
  p->owner = this;
  if (in.defined()) p->in = in.buffer();
  if (out.defined()) p->out = out.buffer();
  p->queued_ns = steady_ns();
  if (stream_ && stream_->operator Stream().handle != nullptr) {
    while (spare_events_.size() < 2) spare_events_.push_back(events_.emplace_back(ctx.backend()));
    for (Event* e : {&p->queued, &p->finished}) {
      *e = spare_events_.back();
      spare_events_.pop_back();
    }
    ctx.backend().record(p->queued, ctx.compute());
    if (recording_) {
      p->begin = ctx.backend().make_timing_event();
      p->end = ctx.backend().make_timing_event();
    }
  }
  in_flight_.push_back(p);
  queue_->push(p);
  return CommHandle(std::move(p));
}

// Grown to the largest call so far. Only while it grows must the calls that use it end first.
void Communicator::need_scratch(RankContext& ctx, CommCall& call) {
  const Bytes need = transport_->scratch(call);
  if (need.value == 0) return;
  if (!scratch_.defined() || scratch_.bytes() < need) {
    if (!in_flight_.empty()) follow(ctx, *in_flight_.back());
    scratch_ = {};
    scratch_ = ctx.empty({static_cast<int64_t>(need.value)}, DType::u8, Tag::comm);
  }
  call.scratch = scratch_.raw();
}

void Communicator::follow(RankContext& ctx, PendingCall& call) {
  if (call.released) return;
  const int64_t begin = steady_ns();
  queue_->wait(call);
  blocked_ns_ += steady_ns() - begin;
  release_up_to(ctx, call.call.sequence);
}

// All of them are over. The compute stream follows the last one; after that their memory may have its next
// life, and their events be recorded again.
void Communicator::release_up_to(RankContext& ctx, uint64_t sequence) {
  const auto end = std::find_if(in_flight_.begin(), in_flight_.end(),
                                [&](const auto& p) { return p->call.sequence > sequence; });
  for (auto it = end; it != in_flight_.begin();) {
    PendingCall& p = **--it;
    if (p.error || p.finished.handle == nullptr) continue;  // a call that failed has left nothing running
    ctx.backend().wait(ctx.compute(), p.finished);
    break;
  }
  for (auto it = in_flight_.begin(); it != end; ++it) {
    PendingCall& p = **it;
    p.released = true;
    p.in.reset();
    p.out.reset();
    for (Event e : {p.queued, p.finished}) {
      if (e.handle != nullptr) spare_events_.push_back(e);
    }
    if (recording_ && !p.error && !p.work) {
      records_.push_back({{p.call.what, p.call.subject, static_cast<int64_t>(p.call.bytes().value),
                           p.queued_ns, p.started_ns, p.ended_ns, p.call.sequence},
                          std::move(p.begin),
                          std::move(p.end)});
    }
  }
  in_flight_.erase(in_flight_.begin(), end);
}

void Communicator::drain(RankContext& ctx) {
  if (in_flight_.empty()) return;
  const auto calls = in_flight_;
  follow(ctx, *calls.back());
  for (const auto& p : calls) {
    if (p->error) std::rethrow_exception(p->error);
  }
}

// Drained: its thread waits under the mutex that the next push takes, and sees the observer after it.
void Communicator::observe(RankContext& ctx, std::shared_ptr<CommObserver> observer) {
  drain(ctx);
  queue_->observe(std::move(observer));
}

void Communicator::abort(const std::string& why) { transport_->abort(why); }

std::vector<CommRecord> Communicator::take_records(RankContext& ctx) {
  drain(ctx);
  std::vector<CommRecord> result;
  for (Recorded& r : records_) {
    if (r.begin) {
      r.record.started = clock_ns_ + static_cast<int64_t>(1e6 * r.begin->elapsed_ms(*clock_));
      r.record.ended = clock_ns_ + static_cast<int64_t>(1e6 * r.end->elapsed_ms(*clock_));
    }
    result.push_back(std::move(r.record));
  }
  records_.clear();
  return result;
}

void Communicator::start_recording() {
  recording_ = true;
  if (!stream_ || stream_->operator Stream().handle == nullptr) return;
  clock_ = ctx_.backend().make_timing_event();
  clock_ns_ = steady_ns(record_now(ctx_.backend(), *clock_, *stream_));
}

}  // namespace kiln
