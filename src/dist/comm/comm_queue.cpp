#include "dist/comm/comm_queue.h"

#include <sys/prctl.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/start_thread.h"
#include "dist/comm/event_passed.h"

namespace kiln {
namespace {

FlightCall flight_call(const PendingCall& p, const char* state) {
  const bool ended = std::string_view(state) == "done" || std::string_view(state) == "failed";
  return {p.call.what,           p.work ? "split" : p.call.subject,
          p.call.dtype,          p.call.count,
          p.call.sequence,       state,
          p.queued_ns,           ended ? p.started_ns : 0,
          ended ? p.ended_ns : 0};
}

}  // namespace

int64_t steady_ns(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

CommQueue::CommQueue(Transport& transport, Backend& backend, Stream stream, const CommOptions& options,
                     std::string flight_path)
    : transport_(transport),
      backend_(backend),
      stream_(stream),
      options_(options),
      flight_path_(std::move(flight_path)) {}

CommQueue::~CommQueue() { stop(); }

void CommQueue::push(std::shared_ptr<PendingCall> call) {
  if (transport_.is_local()) {
    run(*call);
    call->over = true;
    return;
  }
  if (!thread_.joinable()) thread_ = start_thread("the collectives", [this] { loop(); });
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(call));
  }
  changed_.notify_all();
}

void CommQueue::wait(const PendingCall& call) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return call.over; });
}

bool CommQueue::over(const PendingCall& call) {
  const std::lock_guard lock(mutex_);
  return call.over;
}

void CommQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CommQueue::loop() {
  // By default the system may wake a sleeper 50 us late: more than the latency of most links.
  if (options_.link) (void)prctl(PR_SET_TIMERSLACK, 1000UL);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    // Raw: the last reference, and with it the tensors, must be dropped by the rank's thread. The rank keeps
    // one until the call is over.
    PendingCall* const p = queue_.front().get();
    queue_.pop_front();
    running_ = p;
    lock.unlock();
    run(*p);
    lock.lock();
    running_ = nullptr;
    note(*p);
    p->over = true;
    changed_.notify_all();
  }
}

// A call without memory for its line is missing in the record; that must not end the program.
void CommQueue::note(const PendingCall& call) noexcept {
  try {
    flight_.add(flight_call(call, call.error ? "failed" : "done"));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
  }
}

// Nothing leaves it: it is what a thread does.
void CommQueue::run(PendingCall& p) {
  try {
    if (failed_) throw Error(failure_.empty() ? "an earlier call failed" : failure_, failure_hint_);
    carry_out(p);
    return;
  } catch (...) {
    p.error = std::current_exception();
  }
  p.ended_ns = steady_ns();
  {
    const std::lock_guard lock(mutex_);  // flight_record() of the rank's thread reads it
    if (std::exchange(failed_, true)) return;
  }
  try {
    explain(p);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory for more than the error itself
  }
}

// The first failure: its words for the calls to come, and the record of those before it.
void CommQueue::explain(PendingCall& p) {
  std::string text, hint;
  ErrorKind kind = ErrorKind::failed;
  try {
    std::rethrow_exception(p.error);
  } catch (const Error& e) {
    text = e.what();
    hint = e.hint();
    kind = e.kind();
  } catch (const std::exception& e) {
    text = words_of(e);
  }
  if (text.empty()) text = cat(name_of(p.call.what), " failed and did not say why");
  {
    const std::lock_guard lock(mutex_);  // flight_record() of the rank's thread reads it
    failure_ = text;
    failure_hint_ = hint;
  }
  const std::string written = write_flight_record();
  if (written.empty()) return;
  failure_hint_ = hint.empty() ? written : cat(hint, "; ", written);
  try {  // the type of an error that is not ours says more than the hint would
    std::rethrow_exception(p.error);
  } catch (const Error&) {
    p.error = std::make_exception_ptr(Error(text, failure_hint_, kind));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  }
}

void CommQueue::carry_out(PendingCall& p) {
  const bool device = p.finished.handle != nullptr;
  // A modelled link carries nothing before its bytes are there.
  if (options_.link && device) sleep_until_passed(p.queued);
  const auto begun = std::chrono::steady_clock::now();
  p.started_ns = steady_ns(begun);
  if (device) backend_.wait(stream_, p.queued);
  if (p.begin) p.begin->record(stream_);
  if (p.work) {
    p.work();
  } else {
    if (observer_) observer_->on_call_begin(p.call);
    transport_.run(p.call, stream_);
    if (observer_) observer_->on_call_end(p.call, stream_);
    const auto start = transport_.all_arrived().value_or(begun);
    p.started_ns = steady_ns(start);
    if (options_.link) pace(p, start);
  }
  if (p.end) p.end->record(stream_);
  if (device) backend_.record(p.finished, stream_);
  p.ended_ns = steady_ns();
}

// Asleep, so that the cores are the ranks'. On a device too it is this thread that is late: kernels that spin
// would take the device from the ranks that compute, and host functions of several streams run one by one.
void CommQueue::pace(const PendingCall& p, std::chrono::steady_clock::time_point start) {
  if (p.finished.handle != nullptr) {
    backend_.record(p.finished, stream_);  // and once more when the link is done: it is not read before
    sleep_until_passed(p.finished);
  }
  const double seconds = link_seconds(*options_.link, options_.algorithm, p.call, transport_.world());
  std::this_thread::sleep_until(start + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                            std::chrono::duration<double>(seconds)));
}

// CUDA's own wait for an event spins.
void CommQueue::sleep_until_passed(Event event) {
  while (!event_passed(backend_, event)) std::this_thread::sleep_for(std::chrono::microseconds(10));
}

std::string CommQueue::flight_record() {
  const std::lock_guard lock(mutex_);
  FlightRecord all = flight_;
  if (running_ != nullptr) all.add(flight_call(*running_, "running"));
  for (const auto& p : queue_) all.add(flight_call(*p, "queued"));
  return all.json({std::string(transport_.name()), transport_.rank(), transport_.world(), failure_});
}

std::string CommQueue::write_flight_record() {
  if (flight_path_.empty()) return {};
  try {
    write_file_atomically(flight_path_, flight_record());
  } catch (const std::exception& e) {  // the failure itself must be reported
    return cat("no flight record: ", e.what());
  }
  return cat("the last calls are in ", flight_path_);
}

}  // namespace kiln
