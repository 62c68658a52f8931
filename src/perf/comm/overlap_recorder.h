// Watches the steps of one rank and makes a ledger of each: gradients and waits from the strategy, phases
// from the ops, collectives from the communicator. The compute timeline comes from marks in its stream: on a
// GPU the host runs ahead of it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/op_observer.h"
#include "dist/strategy/bucketed.h"
#include "dist/strategy/gather_observer.h"
#include "perf/comm/gather_ledger.h"

namespace kiln {

class OverlapRecorder final : public BucketObserver, public GatherObserver, public OpObserver {
 public:
  // Watches while it lives. The communicator records from here on.
  OverlapRecorder(RankContext& ctx, Communicator& comm);
  ~OverlapRecorder() override;
  OverlapRecorder(const OverlapRecorder&) = delete;
  OverlapRecorder& operator=(const OverlapRecorder&) = delete;

  // Before a step: pending calls are waited for, and clocks are compared, which may take a while. Ranks
  // that are to start at the same time do so after it, and those that share a device have all ended their
  // last step before it: what another rank computes would delay the comparison by milliseconds.
  void prepare_step();
  void begin_step();         // prepares it where that was not done
  OverlapLedger end_step();  // waits for the device and for pending calls

  const std::vector<GatherUse>& gathers() const { return gathers_; }  // of the last step, in order of use

  void on_wanted() override { wanted_ = mark(); }
  void on_gather(const GatherRecord& record) override;
  void on_gradient(const Param& p, int64_t bytes) override;
  void on_start(const Bucket& b) override;
  void on_wait_begin() override { waits_.push_back({mark(), {}}); }
  void on_wait_end() override { waits_.back().end = mark(); }
  void on_finish_begin() override { backward_end_ = mark(); }
  void on_finish_end() override { sums_end_ = mark(); }
  void on_op_begin(RankContext& ctx, const OpEvent& event) override;

 private:
  using Moment = std::size_t;  // a mark of this step, by its number: a later one is not earlier
  Moment mark();
  double us(Moment m) const;  // from the beginning of the step; the host waits until the device has passed it
  double us(const std::optional<Moment>& m) const { return m ? us(*m) : 0; }
  double us_of_host(int64_t ns) const { return static_cast<double>(ns - begin_ns_) / 1e3; }
  void tell_gathers(const std::map<uint64_t, CommRecord>& records);

  RankContext& ctx_;
  Communicator& comm_;
  std::vector<std::unique_ptr<TimingEvent>> marks_;
  std::size_t used_ = 0;
  std::unique_ptr<TimingEvent> clock_;  // passed by the device at clock_ns_ of the host's
  int64_t clock_ns_ = 0;
  bool prepared_ = false;
  int64_t begin_ns_ = 0;  // of the step, by the host's clock

  struct Gradient {
    ReadyGradient what;
    Moment ready = 0;
  };
  struct Started {
    std::string name;
    Moment ready = 0;
  };
  struct Wait {
    Moment begin = 0;
    std::optional<Moment> end;
  };
  struct Gathered {
    GatherUse what;
    Moment wanted = 0;
    uint64_t sequence = 0;
  };
  std::vector<Gradient> gradients_;
  std::vector<Started> started_;  // buckets, in order
  std::vector<Wait> waits_;
  std::vector<Gathered> gathered_;
  Moment wanted_ = 0;
  std::optional<Moment> backward_begin_, backward_end_, sums_end_;
  OverlapLedger ledger_;
  std::vector<GatherUse> gathers_;
};

// Ranks that compute side by side and share nothing: a step without its communication, gradients reported all
// the same. What it trains is of no use.
class ComputeAlone final : public Strategy {
 public:
  explicit ComputeAlone(DType wire = DType::f32) : wire_(wire) {}
  void observe(BucketObserver* observer) { observer_ = observer; }
  void attach(ParamStore& params) override;
  void grad_ready(Param& p) override;
  void finish_gradients() override;

 private:
  BucketObserver* observer_ = nullptr;
  DType wire_;
  int64_t element_ = 0;  // bytes on the wire
};

}  // namespace kiln
