// Why calls take longer than their roofline, or less: the difference, divided among causes. Each cause stands
// on evidence of the calls themselves; what no evidence covers is called unexplained.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

enum class CauseKind {
  recompute,   // work done again for backward
  copies,      // work the model's formula does not have
  dispatch,    // nothing ran: the host was between two calls, or the device between two kernels
  tiles,       // a GEMM computes whole tiles, past the edges of its matrices
  small_call,  // what a call costs however little it does
  shape_rate,  // what calls of this shape were calibrated to take, past tiles and small calls
  cache,       // faster: the bytes need not come from memory
  contention,  // the same call took longer in other steps: clock, and who else is on the machine
  unexplained,
};
inline constexpr int kCauseKinds = 9;

std::string_view name_of(CauseKind kind);

struct Cause {
  CauseKind kind = CauseKind::unexplained;
  double ms = 0;  // below 0: it made the calls faster
  std::string evidence;

  std::string_view name() const { return name_of(kind); }
};

// What is known of one call. Times in ms.
struct CallEvidence {
  double roofline = 0;   // of what the call executes
  double computing = 0;  // the same without its bytes
  double padding = 0;    // at the matmul rate: operations that only fill tiles; 0: none, or not known
  double bytes = 0;
  bool recomputed = false;
  bool copy = false;                // not in the model's formula
  std::optional<double> predicted;  // by a calibration
  double best = 0, typical = 0;     // its own time over the steps: least and median
  double before = 0;                // from the end of the call before it

  bool in_theory() const { return !recomputed && !copy; }
};

// Of a step, outside of its calls.
struct StepEdges {
  double outside = 0;   // before the first call and after the last
  double residual = 0;  // median of whole steps less the sum of their parts' medians
};

// What holds for all calls of a run.
struct RunFacts {
  int steps = 0;         // that were timed
  double fixed_ms = 0;   // what the smallest call takes here; 0: not known
  double cache = 0;      // bytes of the last cache; 0: not known
  bool kernels = false;  // calls are kernels of a GPU, `before` gaps between them
  bool calibrated = false;
  double load = 0;  // processes that wanted to run when the steps began; 0: not known
  int processors = 0;
};

struct Gap {
  double roofline = 0;        // ms of what is in theory: each piece of the model's work once
  double measured = 0;        // ms, dispatch included
  std::vector<Cause> causes;  // the largest first; they sum to ms()

  double ms() const { return measured - roofline; }
  double of(CauseKind kind) const;  // 0 where it is no cause
};

// Of calls together: their causes are the sums of each call's own.
Gap explain(std::span<const CallEvidence> calls, const RunFacts& facts, const StepEdges& edges = {});

// "rate at this shape 12.1 ms (such calls were calibrated at 20.3 ms, roofline 8.2 ms)".
std::string str(const Cause& cause);

}  // namespace kiln
