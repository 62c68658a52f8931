// The analysis of a record of allocations: the peak and what held it, what each phase, op, line and layer
// took, and the largest allocations with their origins. Works on the record alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "perf/memory/memory_trace.h"

namespace kiln {

// From its allocation to its free, in numbers of events. What was there before the first event begins at 0;
// what is still there after the last ends behind it.
struct MemoryLife {
  MemoryEvent origin;
  std::size_t begin = 0, end = 0;
  bool live_at(std::size_t event) const { return begin <= event && event < end; }
};

struct MemoryPeak {
  std::size_t event = 0;  // after which this much was in use
  std::size_t bytes = 0;
  PerTag<std::size_t> by_tag{};
};

struct PhasePeak {
  Phase phase = Phase::setup;
  MemoryPeak peak;
};

struct MemoryAnalysis {
  std::vector<MemoryLife> lives;    // in the order of their beginning
  std::vector<std::size_t> in_use;  // bytes after each event
  MemoryPeak peak;
  PerTag<std::size_t> own_peak{};  // of each tag, at its own moment
  std::vector<PhasePeak> phases;   // those that had events, in the order of the enumeration
  std::size_t peak_reserved = 0;   // taken from the device
};

MemoryAnalysis analyse(const MemoryRecord& record);

// What shares a name: an op, a line, a layer.
struct MemoryGroup {
  std::string name;
  int64_t count = 0;          // allocations
  std::size_t allocated = 0;  // total bytes
  std::size_t at_peak = 0;    // of them, in use at the peak
  std::size_t largest = 0;    // one of them
};

std::string op_key(const MemoryRecord& record, const MemoryEvent& e);     // "forward attention (flash)"
std::string line_key(const MemoryRecord& record, const MemoryEvent& e);   // "src/ops/add/add.cpp:52"
std::string layer_key(const MemoryRecord& record, const MemoryEvent& e);  // "layers.3", "loss", "(none)"

using MemoryKey = std::function<std::string(const MemoryRecord&, const MemoryEvent&)>;
// Most bytes at the peak first, then most bytes allocated.
std::vector<MemoryGroup> group_by(const MemoryRecord& record, const MemoryAnalysis& a, const MemoryKey& key);

// Allocations of one size from one place, in however many layers.
struct LargeAllocation {
  MemoryEvent origin;  // of the first
  std::vector<std::string> layers;
  std::size_t bytes = 0;
  int64_t count = 0, live_at_peak = 0;
};

// The largest `percent` of all allocations (at least one), by number; equal ones are one entry.
std::vector<LargeAllocation> largest_allocations(const MemoryRecord& record, const MemoryAnalysis& a,
                                                 double percent);

// Bytes in use at the peak in allocations of exactly `requested` bytes by the ops of attention: how its
// matrices of scores are found. Other ops may have tensors of the same size.
std::size_t scores_at_peak(const MemoryAnalysis& a, std::size_t requested);

// y = c x^exponent by least squares on logarithms. `last` is the slope between the last two points: where a
// sum of powers is heading.
struct PowerFit {
  double exponent = 0, last = 0;
  double r2 = 1;
};
PowerFit fit_power(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace kiln
