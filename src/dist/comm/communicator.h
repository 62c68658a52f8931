// Collectives between the ranks of a run. A call runs asynchronously to the compute stream: it starts when
// what the compute stream has queued so far is done, and the returned handle makes the compute stream wait
// for its end. On the CPU it runs on the communicator's own thread while the rank computes on.
//
// Every rank makes the same calls in the same order. Tensors are contiguous and flat. `subject` says what the
// tensor is, a parameter's name say: nothing else distinguishes two of the same size. The `threads`
// transport sums pairwise in the accumulation type, so all ranks and all runs get the same bits.
//
// Until a call is over its inputs must not be written, nor its outputs touched. Its memory is held until a
// handle of it, or of a later call, is waited for: that makes the allocator's addresses independent of
// timing.
#pragma once

#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "autograd/rank_context.h"
#include "dist/comm/comm_options.h"
#include "dist/comm/comm_queue.h"
#include "dist/comm/transport.h"

namespace kiln {

// A call in flight. Handles may be copied, dropped and waited for in any order, by the rank's thread.
class CommHandle {
 public:
  CommHandle() = default;
  explicit CommHandle(std::shared_ptr<PendingCall> call) : call_(std::move(call)) {}
  // Later work of the compute stream follows the call. On the CPU the host waits; on CUDA it waits only until
  // the call has been queued on the device, which needs every rank to have called it. Throws what went wrong.
  void wait(RankContext& ctx) const;
  bool done() const;  // nothing is left to wait for, be it because it failed
  // Of a call that was waited for: when it was queued and when it ended, as in its record.
  // On CUDA that is when it had been queued on the device.
  int64_t queued_ns() const { return call_ ? call_->queued_ns : 0; }
  int64_t ended_ns() const { return call_ ? call_->ended_ns : 0; }
  uint64_t sequence() const { return call_ ? call_->call.sequence : 0; }  // as in its record

 private:
  std::shared_ptr<PendingCall> call_;
};

class Communicator {
 public:
  // `label` distinguishes a rank's communicators in the name of a flight record.
  Communicator(RankContext& ctx, std::unique_ptr<Transport> transport, const CommOptions& options = {},
               std::string label = "world");
  // Pending calls are waited for, or, during stack unwinding, given up.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return transport_->rank(); }
  int world() const { return transport_->world(); }
  std::string_view transport() const { return transport_->name(); }  // "threads", "mpi", "nccl", "alone"
  const CommOptions& options() const { return options_; }

  CommHandle all_reduce(RankContext& ctx, const Tensor& t, std::string_view subject = {});  // in place, sum
  CommHandle all_gather(RankContext& ctx, const Tensor& shard, const Tensor& full,
                        std::string_view subject = {});  // full: world shards
  CommHandle reduce_scatter(RankContext& ctx, const Tensor& full, const Tensor& shard,
                            std::string_view subject = {});  // shard: this rank's
  // The root gets the sum. Elsewhere `t` is left with what the way there has made of it.
  CommHandle reduce(RankContext& ctx, const Tensor& t, int root, std::string_view subject = {});
  CommHandle broadcast(RankContext& ctx, const Tensor& t, int root, std::string_view subject = {});
  // A send is over when the other rank has received. Calls run in order: two ranks that both send first and
  // receive after wait for each other until the time-out; send_recv does both at once.
  CommHandle send(RankContext& ctx, const Tensor& t, int to, std::string_view subject = {});
  CommHandle recv(RankContext& ctx, const Tensor& t, int from, std::string_view subject = {});
  CommHandle send_recv(RankContext& ctx, const Tensor& out, int to, const Tensor& in, int from,
                       std::string_view subject = {});
  void barrier(RankContext& ctx, std::string_view subject = {});  // the host waits
  // The ranks that give the same colour, ordered by (key, rank), as a communicator of their own with its own
  // thread and stream. Null where `color` is negative. Every rank calls it; the host waits.
  std::unique_ptr<Communicator> split(RankContext& ctx, int color, int key);

  // The host waits until every call is over; throws the first error that no handle has thrown yet.
  void drain(RankContext& ctx);
  // Ends every rank's calls with an error that names this rank; nothing can be called after.
  void abort(const std::string& why);

  // What each call took, from start_recording() on, in order. take_records() waits for pending calls.
  // On CUDA, of several ranks, `started` and `ended` are the device's times, put on the host's clock as it
  // was when recording was last started; a start is then the moment this rank's data was ready and the calls
  // before it over.
  void start_recording();
  std::vector<CommRecord> take_records(RankContext& ctx);
  void stop_recording() { recording_ = false; }
  // Sees every later call; nothing may be pending. Kept as long as the communicator.
  void observe(RankContext& ctx, std::shared_ptr<CommObserver> observer);
  // How long the rank's thread has waited for calls to be over, so far. On CUDA: to be queued.
  int64_t blocked_ns() const { return blocked_ns_; }
  // The last 1000 calls as JSON, pending ones included.
  std::string flight_record() const { return queue_->flight_record(); }

 private:
  friend class CommHandle;
  CommHandle queue(RankContext& ctx, CommCall call, const Tensor& in, const Tensor& out,
                   std::function<void()> work = {});
  void need_scratch(RankContext& ctx, CommCall& call);
  void follow(RankContext& ctx, PendingCall& call);
  void release_up_to(RankContext& ctx, uint64_t sequence);

  RankContext& ctx_;
  CommOptions options_;
  std::string label_;
  int exceptions_;  // passing when it was made
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<OwnedStream> stream_;  // none where calls run on the rank's own
  Tensor scratch_;                       // shared by all calls, since they run in order
  std::vector<OwnedEvent> events_;
  std::vector<Event> spare_events_;
  std::deque<std::shared_ptr<PendingCall>> in_flight_;  // in order; none has been released
  uint64_t next_ = 0;
  int splits_ = 0;
  int64_t blocked_ns_ = 0;
  bool recording_ = false;
  struct Recorded {
    CommRecord record;
    std::unique_ptr<TimingEvent> begin, end;
  };
  std::vector<Recorded> records_;
  std::unique_ptr<TimingEvent> clock_;  // passed by the device at clock_ns_ of the host
  int64_t clock_ns_ = 0;
  std::unique_ptr<CommQueue> queue_;  // last: its thread uses the rest
};

}  // namespace kiln
