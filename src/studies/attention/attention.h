// The work of `kiln bench attention`, `flash` and `leaderboard flash`: cells of attention, each variant
// checked against naive, then timed and its memory read, compared with what meta and the machine's own rates
// predict.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "perf/timing/host_load.h"
#include "perf/timing/op_times.h"
#include "studies/attention/cell_set.h"
#include "studies/op/op.h"

namespace kiln {

struct AttentionRequest {
  std::string command = {};  // "bench flash"
  std::string table = {};    // which cells these are: "grid", "tokens16k", "steps"
  std::vector<AttentionCell> cells = {};
  std::vector<std::string> variants = {};  // "auto": the one a run takes
  std::vector<AttentionPass> passes = {};
  AttentionChoices choices = {};  // of tiles, measured before; else the defaults
  AttentionClock clock = {};
  bool skip_slow = true;       // naive on the CPU, where one call would take long
  StopAsked stop = nullptr;    // asked between calls; true: the rows done by then are the report
  bool scaling_fits = false;   // also how the memory grows with the sequence
  double datasheet = 0;        // FLOP/s for a second roofline, where there is a figure to print
  Bytes memory_cap{SIZE_MAX};  // as if the device had no more
  Device device = {};          // on meta cells are planned, not timed
  int threads = 0;
  uint64_t seed = 0;
};

struct AttentionRow : RowOutcome {
  AttentionCell cell;
  std::string variant;           // the one that runs
  std::string backward_variant;  // in backward; empty: the same
  bool automatic = false;        // and runs without being requested
  std::string tiles;             // of its forward pass, where there is a choice
  AttentionPlan plan;
  AttentionMemory measured;
  std::size_t free_memory = 0;  // bytes; where there is too little

  // How far from naive in fp64, and how far it may be; on a smaller shape.
  double error = 0, allowed = 0;
  int64_t checked_queries = 0, all_queries = 0;  // of each key/value head: looked at, and there are

  std::array<std::optional<Timing>, kAttentionPasses> timings;
  std::array<std::optional<double>, kAttentionPasses> speedups;  // over naive, on the same cell
  std::array<std::optional<Comparison>, kAttentionPasses>
      versus;  // the same of all samples; not of naive itself
  Rates best;  // measured ceilings

  std::string names() const { return one_variant() ? variant : cat(variant, " / ", backward_variant); }
  // What to ask for so that these run: each pass chooses for itself where they are two.
  std::string asked() const { return one_variant() ? variant : "auto"; }
  bool one_variant() const { return backward_variant.empty(); }

  bool timed() const { return ok(); }
  bool planned() const { return !plan.variant.empty(); }  // some variant takes the cell
  const std::optional<Timing>& timing(AttentionPass p) const { return timings[static_cast<std::size_t>(p)]; }
  double flops_per_second(AttentionPass p) const { return cell.least(p).flops / timing(p)->p50; }
  double of_ceiling(AttentionPass p) const { return flops_per_second(p) / best.flops; }
  // What the variant's own operations and bytes take at the ceilings, and what the cell's least take. Naive
  // is predicted to be slow: its bytes grow with the square of the sequence.
  double own_roofline_ms(AttentionPass p, double cache = 0) const;
  double roofline_ms(AttentionPass p, double cache = 0) const;
};

// Bytes in use before backward, as linear x seq + square x seq^2.
struct ScalingFit {
  std::string variant;
  AttentionCell cell;  // of any length
  double linear = 0, square = 0;
};

struct AttentionReport {
  std::string command, table, device, device_name, isa;
  HostLoad load;  // while it was measured
  int threads = 1;
  bool stopped = false;          // before its last row
  bool planned = false;          // on meta: memory and costs, no times and no ceilings
  double copy = 0;               // bytes/s
  std::vector<NamedRate> flops;  // per dtype of the cells
  std::vector<AttentionPass> passes;
  AttentionClock clock;
  double datasheet = 0;
  std::vector<AttentionRow> rows;
  std::vector<ScalingFit> scaling_fits;

  const AttentionRow* first(RowStatus status) const;  // null: none
};

// Throws Error for a variant that attention does not have.
void check_attention_request(const AttentionRequest& request);

// The request has passed check_attention_request(). A cell that does not fit is a row like the others.
AttentionReport bench_attention(const AttentionRequest& request,
                                const std::function<void(const std::string&)>& progress);

// So many bytes that writing them leaves nothing else in the device's cache.
std::size_t flush_bytes(const Device& device);

}  // namespace kiln
