// Where sharded weights are gathered to: k+1 fixed slots, used round-robin. While one weight is in use, the
// next k are being gathered; a gather starts only when the weight that had its slot k+1 windows before is
// done with it, so memory is bounded and the same in every step. The first micro-step, which records the
// order, gathers on demand, and so does one that leaves the order; every rank does the same, for all run the
// same model.
#pragma once

#include <list>
#include <vector>

#include "autograd/param_store.h"
#include "dist/comm/communicator.h"
#include "dist/strategy/gather_observer.h"
#include "dist/strategy/gather_order.h"

namespace kiln {

class GatherSlots {
 public:
  GatherSlots(RankContext& ctx, Communicator& comm, int prefetch);
  GatherSlots(const GatherSlots&) = delete;
  GatherSlots& operator=(const GatherSlots&) = delete;

  void attach(const ParamStore& params) { params_ = &params; }
  void observe(GatherObserver* observer) { observer_ = observer; }  // null: nobody

  void begin_micro_step();
  void end_micro_step();  // it went through
  void drop();            // it did not, or something else comes: nothing gathered is good any more

  void acquire(Param& p, DType as);  // leaves Param::value defined
  void release(Param& p);

  const GatherOrder& order() const { return order_; }
  int64_t gathers() const { return gathers_; }  // so far

 private:
  struct Held {
    Tensor bytes;            // the slot's memory, or one's own
    Param* param = nullptr;  // null: empty
    DType as = DType::f32;
    int64_t window = -1;  // its place in the order; -1: gathered on demand
    int users = 0;        // ops that hold it now
    bool waited = false;  // for its gather
    Tensor shard;         // this rank's piece in the dtype that travels, until it has
    CommHandle handle;
    GatherRecord record;
    bool is(const Param& p, DType dtype) const { return param == &p && as == dtype; }
  };

  Held& on_demand(Param& p, DType as);
  Held* free_slot(int64_t bytes);
  void start(Held& h, Param& p, DType as, int64_t window);
  void start_ahead();
  void wait(Held& h);
  void use(Held& h, Param& p);
  void finish(Held& h);  // waits for a gather that was not used
  void forget(Held& h);
  bool is_slot(const Held& h) const { return !slots_.empty() && &h >= slots_.data() && &h <= &slots_.back(); }
  Held& slot_of(int64_t window) { return slots_[static_cast<std::size_t>(window) % slots_.size()]; }

  RankContext& ctx_;
  Communicator& comm_;
  const int prefetch_;
  const ParamStore* params_ = nullptr;
  GatherObserver* observer_ = nullptr;
  GatherOrder order_;
  std::vector<Held> slots_;    // once the order is known
  std::list<Held> others_;     // on demand, where no slot was free
  std::vector<Held*> in_use_;  // in the order they were acquired
  int64_t next_ahead_ = 0;     // the first window that has not been started
  int64_t gathers_ = 0;
  bool open_ = false;  // inside a micro-step
};

}  // namespace kiln
