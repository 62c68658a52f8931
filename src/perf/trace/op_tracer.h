// Watches a rank's ops and its memory, and makes a Trace of what it saw. On the CPU an op's two clock
// readings are its span. On a GPU they only say when the host called it: there the tracer can queue marks
// around each op (the fall-back where CUPTI is refused); otherwise kernel_attribution.h matches kernels
// with ops.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "autograd/op_observer.h"
#include "base/call_stack.h"
#include "perf/timing/queued_timing.h"
#include "perf/trace/trace.h"

namespace kiln {

class OpTracer final : public OpObserver, public AllocObserver {
 public:
  enum class Clock { host, marks };
  // Microseconds from some moment on; the steady clock where none is given.
  using Now = std::function<double()>;

  explicit OpTracer(RankContext& ctx, Clock clock = Clock::host, Now now = {});
  ~OpTracer() override;
  OpTracer(const OpTracer&) = delete;
  OpTracer& operator=(const OpTracer&) = delete;

  // Also who called each op: costs more than all the rest of the tracer.
  void take_stacks() { stacks_.emplace(); }
  void attach();  // watches from now on, until detach() or the end
  void detach();
  void begin_step();  // forgets what came before
  Trace end_step();   // waits for the marks, where there are any
  // For each point of memory of the last step: how many ops had begun.
  const std::vector<int>& memory_at_op() const { return memory_at_op_; }

  void on_op_begin(RankContext& ctx, const OpEvent& event) override;
  void on_op_end(RankContext& ctx, const OpEvent& event) override;
  void on_alloc_event(const AllocEvent& event) override;

 private:
  void read_marks();

  RankContext& ctx_;
  Clock clock_;
  Now now_;
  std::optional<StreamMarks> marks_;
  bool attached_ = false;
  Trace trace_;
  std::vector<int> memory_at_op_;
  std::optional<std::vector<CallStack>> stacks_;  // of each op
  std::size_t live_ = 0;
  int depth_ = 0;  // an op that calls others is one op
};

// Marks and kernels run later than the ops were called: moves each point of memory to where the span of the
// next op begins. `at_op` says how many ops had begun when the point was taken.
void place_memory(Trace& trace, const std::vector<int>& at_op);

}  // namespace kiln
