// Watches the steps of one rank and makes a ledger of each: gradients and waits from the strategy, phases
// from the ops, collectives from the communicator.
#pragma once

#include <memory>
#include <vector>

#include "autograd/op_observer.h"
#include "dist/bucketed.h"
#include "dist/gather_observer.h"
#include "perf/gather_ledger.h"

namespace kiln {

class OverlapRecorder final : public BucketObserver, public GatherObserver, public OpObserver {
 public:
  // Watches while it lives. The communicator records from here on.
  OverlapRecorder(RankContext& ctx, Communicator& comm);
  ~OverlapRecorder() override;
  OverlapRecorder(const OverlapRecorder&) = delete;
  OverlapRecorder& operator=(const OverlapRecorder&) = delete;

  void begin_step();
  OverlapLedger end_step();  // waits for the device and for the calls under way

  const std::vector<GatherUse>& gathers() const { return gathers_; }  // of the last step, in order of use

  void on_gather(const GatherRecord& record) override;
  void on_gradient(const Param& p, int64_t bytes, int64_t at) override;
  void on_start(const Bucket& b, int64_t at) override;
  void on_wait(int64_t begin, int64_t end) override;
  void on_finish(int64_t begin, int64_t end) override;
  void on_op_begin(RankContext& ctx, const OpEvent& event) override;

 private:
  double us(int64_t ns) const { return static_cast<double>(ns - begin_) / 1e3; }

  RankContext& ctx_;
  Communicator& comm_;
  int64_t begin_ = 0;
  bool in_backward_ = false;
  struct Started {
    std::string name;
    double ready = 0;
  };
  std::vector<Started> started_;  // buckets, in order
  OverlapLedger ledger_;
  std::vector<GatherUse> gathers_;
};

// Ranks that compute side by side and share nothing: a step without its communication, gradients told all the
// same. What it trains is of no use.
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
