// The tables of a traced step: its ranges, its kernels, its share of matmuls, what attention's parts
// cost, and who waited for whom. All of it is counted from one Trace, so a span that changes changes the
// tables.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "perf/timing/op_times.h"
#include "perf/trace/trace.h"

namespace kiln {

// The parts of a step that a table is about. `nobody`: spans that belong to no op.
struct PhaseSet {
  bool forward = false, backward = false, update = false, nobody = false;
  bool has(StepPhase p) const {
    return p == StepPhase::forward ? forward : p == StepPhase::backward ? backward : update;
  }
};
inline constexpr PhaseSet kForward{true, false, false, false};
inline constexpr PhaseSet kBackward{false, true, false, false};
inline constexpr PhaseSet kUpdate{false, false, true, false};
inline constexpr PhaseSet kForwardBackward{true, true, false, false};
inline constexpr PhaseSet kWholeStep{true, true, true, true};

PhaseSet set_of(StepPhase p);

// --- kernels

struct OpRates {
  Rates best;              // what the device can do at best
  double smallest_ms = 0;  // what the smallest op takes here: none is predicted to be faster
};

struct KernelRow {
  std::string name;  // as in the trace
  KernelGroup group = KernelGroup::elementwise;
  int calls = 0;
  double ms = 0, share = 0;               // of all kernels of the set
  double predicted_ms = 0, floor_ms = 0;  // of the ops it ran for; split where an op has several kernels
};

// One row for each name, the slowest first.
std::vector<KernelRow> kernels_of(const Trace& trace, const PhaseSet& set, const OpRates& rates);

struct GroupRow {
  KernelGroup group = KernelGroup::matmul;
  int calls = 0;
  double ms = 0, share = 0;
};
std::vector<GroupRow> groups_of(const Trace& trace, const PhaseSet& set);  // the slowest first

// Of all kernels of the set: matmuls, attention in one kernel (matmuls and softmax), and all.
struct MatmulShare {
  double total_ms = 0, matmul_ms = 0, attention_ms = 0;
  double predicted = 0, at_the_floor = 0;  // shares of matmuls by the ops' costs
  double matmul() const { return total_ms > 0 ? matmul_ms / total_ms : 0; }
  double with_attention() const { return total_ms > 0 ? (matmul_ms + attention_ms) / total_ms : 0; }
};
MatmulShare matmul_share(const Trace& trace, const PhaseSet& set, const OpRates& rates);

// --- attention's parts, forward, over all layers; nothing where attention is one kernel

struct AttentionPart {
  std::string name;  // scores, softmax, final_matmul
  int calls = 0;
  double ms = 0;
  Cost cost;
  double predicted_ms = 0, floor_ms = 0;
};
std::optional<std::array<AttentionPart, 3>> attention_parts(const Trace& trace, const OpRates& rates);

// --- ranges

// Operations of the model, which the ops' own costs do not include: of one micro-step forward, one layer.
struct ModelWork {
  double attention_causal = 0;  // two matmuls over half of the T x T pairs
  double attention_dense = 0;   // over all of them
  double unmasked = 1;          // pairs there are, over pairs that see each other
  double head = 0;
};

struct RangeRow {
  std::string phase;  // step, forward, backward, optimizer
  std::string range;  // "layers.*.attention"; empty: all of the phase
  int ops = 0, kernels = 0;
  double ms = 0;           // of its kernels; ops on the CPU
  double idle_ms = 0;      // on the device before them; on the CPU what the host does between ops
  double dispatch_ms = 0;  // of the host: on the CPU the same, on a GPU from one op's end to the next one's
  Cost cost;               // executed, by the ops' cost functions
  double dense_flops = 0;  // the same, attention as if nothing were masked
  double model_causal = 0, model_dense = 0;  // of the model: recomputation does not count
  double predicted_ms = 0, floor_ms = 0;

  double wall_ms() const { return ms + idle_ms; }
  double per_second(double amount) const { return wall_ms() > 0 ? amount / (wall_ms() / 1e3) : 0; }
};

// The step, each phase and each scope inside it, layers taken together, in the order in which they ran.
std::vector<RangeRow> ranges_of(const Trace& trace, const OpRates& rates, const ModelWork& model);

// The same of each layer by itself: "layers.3".
std::vector<RangeRow> layers_of(const Trace& trace, const OpRates& rates, const ModelWork& model);

// --- who called, where stacks were taken

struct OriginRow {
  std::string origin;
  int ops = 0;
  double ms = 0, share = 0;
};
std::vector<OriginRow> origins_of(const Trace& trace);  // the slowest first

// --- who waits for whom

// The same step without the tracer, which makes each launch slower: the bound is found on this one.
struct PlainStep {
  double ms = 0, host_ms = 0;  // of the step, and of the host at work for it
};

struct Dispatch {
  double wall_ms = 0;  // of the traced step
  double busy_ms = 0;  // while kernels ran
  double idle_ms = 0;
  PlainStep plain;
  int launches = 0;        // kernels; ops on the CPU
  double mean_gap_us = 0;  // between one and the next
  enum class Bound { busy, launch_bound, waiting } bound = Bound::busy;
  double per_launch_us() const { return launches > 0 ? 1e3 * plain.host_ms / launches : 0; }
  double idle_share() const { return plain.ms > busy_ms ? 1 - busy_ms / plain.ms : 0; }
  double host_share() const { return plain.ms > 0 ? plain.host_ms / plain.ms : 0; }
};
// Without a plain step the traced one stands for it, and the host's time is counted from the trace.
Dispatch dispatch_of(const Trace& trace, std::optional<PlainStep> plain = {});

int launches_of(const Trace& trace, const PhaseSet& set);
int ops_of(const Trace& trace, const PhaseSet& set);

}  // namespace kiln
