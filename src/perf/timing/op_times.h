// Where the milliseconds of a step go: an observer that queues a mark before and after every op and reads
// them when the step is done. It belongs to the CPU and to meta: a replayed graph calls no op, and on a GPU
// marks would charge every kernel with its own launch (kernel_times.h is for that).
#pragma once

#include <string_view>
#include <vector>

#include "autograd/op_observer.h"
#include "perf/timing/queued_timing.h"

namespace kiln {

// gemm: linear, batched_matmul. head: linear_cross_entropy, whose matmuls and loss are one op. attention:
// attention, and masked_softmax where it is composed. scalars: what makes a step's record.
enum class OpClass { gemm, head, attention, pointwise, update, scalars };
inline constexpr int kOpClasses = 6;

std::string_view name_of(OpClass c);
OpClass class_of(std::string_view op);

// What the device can do at best, per second.
struct Rates {
  double flops = 0, bytes = 0;
};

struct TimedOp {
  std::string_view op, variant;  // of the op's own table, so they live as long as the program
  Pass pass = Pass::forward;
  bool recomputed = false;
  Cost cost;
  double ms = 0;
  // Of what it writes first: elements are rows x columns. With the cost they tell the calls of an op apart.
  DType dtype = DType::f32;
  int64_t rows = 0, columns = 0;

  // Roofline: the larger of its operations at the GEMM rate and its bytes at the copy rate.
  double floor_ms(const Rates& best) const;
};

// forward, backward, recomputed or update: what a call is to the step it is part of.
std::string_view step_pass(const TimedOp& op);

class OpTimes final : public OpObserver {
 public:
  explicit OpTimes(RankContext& ctx);  // watches while it lives
  ~OpTimes() override;
  OpTimes(const OpTimes&) = delete;
  OpTimes& operator=(const OpTimes&) = delete;

  void on_op_begin(RankContext& ctx, const OpEvent& event) override;
  void on_op_end(RankContext& ctx, const OpEvent& event) override;

  void clear();                       // begins a new step
  std::vector<TimedOp> take() const;  // in the order they ran; waits for them
  // From the end of the call before to the beginning of each; of the first call 0.
  std::vector<double> gaps_ms() const;

 private:
  RankContext& ctx_;
  StreamMarks marks_;
  std::vector<TimedOp> ops_;
  int depth_ = 0;  // an op that calls others is one op
};

struct ClassTime {
  OpClass what = OpClass::gemm;
  int calls = 0;
  double ms = 0, floor_ms = 0;
  Cost cost;
};

// One row for each class that has ops.
std::vector<ClassTime> by_class(const std::vector<TimedOp>& ops, const Rates& best);

struct OpTotal {
  TimedOp op;  // ms and cost are totals over all its calls
  int calls = 0;
  double floor_ms = 0;
};

// One row for each op, variant and pass, the slowest first.
std::vector<OpTotal> by_op(const std::vector<TimedOp>& ops, const Rates& best);

// The same step timed several times: each op's median. Throws where the steps did not run the same ops.
std::vector<TimedOp> median_ops(const std::vector<std::vector<TimedOp>>& steps);

}  // namespace kiln
