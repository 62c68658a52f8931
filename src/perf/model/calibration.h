// What no bound knows of a machine, measured on it by `kiln doctor --calibrate`: how long calls of each op
// take over a range of shapes, and what a step takes beside its ops. Part of a hardware file.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/json_reader.h"
#include "perf/timing/op_times.h"

namespace kiln {

// A call's size: what it writes first has rows x columns elements.
struct CallShape {
  double flops = 0, bytes = 0, rows = 0, columns = 0;
};

struct CalibratedCall {
  CallShape shape;
  double seconds = 0;
};

// What tells curves apart. `compute` is the format a step multiplies in, `dtype` the one the call writes.
struct CurveKey {
  std::string op, variant, pass, compute, dtype;
  friend auto operator<=>(const CurveKey&, const CurveKey&) = default;
};

CurveKey key_of(const TimedOp& op, DType compute);
CallShape shape_of(const TimedOp& op);

struct CallCurve {
  CurveKey key;
  std::vector<CalibratedCall> calls;
};

// A collective among ranks of this machine: latency a message, and a rank's rate of sending.
struct CalibratedLink {
  std::string transport;
  int ranks = 2;
  double latency = 0, bytes_per_s = 0;
};

struct Calibration {
  std::string date, build;
  std::string isa;       // of a CPU
  int threads = 0;       // likewise
  double clock_hz = 0;   // under load; 0: not known
  double dispatch = 0;   // seconds a call, of ops called one by one: host work between two of them
  double graph_gap = 0;  // seconds between two kernels of a graph
  double step = 0;       // seconds a step, whatever is in it
  double spread = 0;     // of the same step repeated: standard deviation over mean, the median of all
  std::vector<CallCurve> curves;
  std::vector<CalibratedLink> links;

  std::size_t calls() const;
};

// Times of graphs as of steps launched op by op. Error for what cannot be: a time of 0, a curve without
// calls.
Calibration read_calibration(const JsonValue& v);
Json calibration_json(const Calibration& c);

}  // namespace kiln
