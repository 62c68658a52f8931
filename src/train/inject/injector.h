// Makes the faults of --inject happen on one rank, through the seams that are there for watching: ops, the
// communicator, files, and the loop around the steps. Nothing of it exists in a run without --inject.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "autograd/op_observer.h"
#include "autograd/param_store.h"
#include "base/file_watch.h"
#include "dist/comm/comm_observer.h"
#include "train/inject/injection.h"
#include "train/step_hook.h"

namespace kiln {

class Injector final : public OpObserver, public CommObserver, public FileWatch, public StepHook {
 public:
  // Of all injections, those of this rank. Watches the ops of `ctx` while it lives.
  Injector(const std::vector<Injection>& all, RankContext& ctx);
  ~Injector() override;
  Injector(const Injector&) = delete;
  Injector& operator=(const Injector&) = delete;

  void attach(ParamStore& params) { params_ = &params; }  // for faults of weights
  void at(FaultPoint point);                              // init, finalize: the rank has come there

  // A step's faults happen again when it is replayed.
  bool needs_result(int64_t) const override { return true; }
  void before_step(int64_t step) override;
  void after_step(int64_t step) override;

  void on_op_begin(RankContext& ctx, const OpEvent& event) override;
  void on_op_end(RankContext& ctx, const OpEvent& event) override;
  void on_call_begin(const CommCall& call) override;
  void on_call_end(const CommCall& call, Stream stream) override;
  int before(FileOp op, std::string_view path) override;
  void begin_save(int64_t step) override { saved_step_ = step; }

  std::vector<std::string> not_happened() const;  // as they were spelled

 private:
  using Clock = std::chrono::steady_clock;
  struct Fault {
    Injection what;
    bool happened = false;
    int calls = 0;  // of the save's, counted so far
  };
  template <class Do>
  void for_each(FaultKind kind, Do what_to_do);
  void end_rank(Fault& fault);
  void reach(FaultPoint point, int64_t step);
  void plant(Fault& fault, const Tensor& t, Stream stream);
  void damage_weight(Fault& fault);
  bool reduces_gradients(const CommCall& call) const;

  RankContext& ctx_;
  ParamStore* params_ = nullptr;
  std::vector<Fault> faults_;
  std::atomic<int64_t> step_ = 0;  // the one that runs, or was the last
  std::atomic<int64_t> saved_step_ = 0;
  std::atomic<bool> in_step_ = false;
  bool planted_ = false;  // in this pass over the step
  std::atomic<bool> bucket_planted_ = false;
  Phase last_phase_ = Phase::setup;
  int depth_ = 0;  // of ops made of ops
  Clock::time_point op_begin_;
  Clock::duration owed_{};  // of sleep
};

}  // namespace kiln
