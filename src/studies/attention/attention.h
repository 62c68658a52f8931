// The work of `kiln bench attention`, `flash` and `leaderboard flash`: cells of attention, each variant
// checked against naive, then timed and its memory read, beside what meta and the machine's own rates
// foretell.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "studies/attention/cell_set.h"
#include "studies/op/op.h"
#include "perf/timing/op_times.h"

namespace kiln::cli {

struct AttentionRequest {
  std::string command;  // "bench flash"
  std::string table;    // which cells these are: "grid", "tokens16k", "steps"
  std::vector<AttentionCell> cells;
  std::vector<std::string> variants;  // "auto": the one a run takes
  std::vector<AttentionPass> passes;
  AttentionChoices choices;  // of tiles, measured before; else the defaults
  AttentionClock clock;
  bool skip_slow = true;                 // naive on the CPU, where one call would take long
  std::function<bool()> stop = nullptr;  // asked before each row; true: what is done by then is the report
  bool laws = false;                     // also how the memory grows with the sequence
  double datasheet = 0;                  // FLOP/s for a second floor, where there is a figure to print
  Bytes memory_cap{SIZE_MAX};            // as if the device had no more
  Device device;                         // on meta cells are planned, not timed
  int threads = 0;
  uint64_t seed = 0;
};

struct AttentionRow {
  enum class Status { timed, planned, no_memory, skipped, wrong, failed };
  Status status = Status::timed;
  std::string reason;  // where it was not timed
  AttentionCell cell;
  std::string variant;     // the one that runs
  bool automatic = false;  // and runs without being asked for
  std::string tiles;       // of its forward pass, where there is a choice
  AttentionPlan plan;
  AttentionMemory measured;
  std::size_t room = 0;  // bytes; where there is too little

  // How far from naive in fp64, and how far it may be; on a smaller shape.
  double error = 0, allowed = 0;
  BenchShape checked_at{};

  std::array<std::optional<Timing>, kAttentionPasses> timings;
  std::array<std::optional<double>, kAttentionPasses> speedups;  // over naive, on the same cell
  std::array<std::optional<Comparison>, kAttentionPasses>
      versus;  // the same of all samples; not of naive itself
  Rates best;  // measured ceilings

  std::string_view gate() const;  // "passed", "planned", "no memory", "not run" or "failed"
  bool timed() const { return status == Status::timed; }
  const std::optional<Timing>& timing(AttentionPass p) const { return timings[static_cast<std::size_t>(p)]; }
  double flops_per_second(AttentionPass p) const { return cell.least(p).flops / timing(p)->p50; }
  double of_ceiling(AttentionPass p) const { return flops_per_second(p) / best.flops; }
  // What the variant's own operations and bytes take at the ceilings, and what the cell's least take. Naive
  // is foretold to be slow: its bytes grow with the square of the sequence.
  double predicted_ms(AttentionPass p) const;
  double floor_ms(AttentionPass p) const;
};

// Bytes in use before backward, as linear x seq + square x seq^2.
struct MemoryLaw {
  std::string variant;
  AttentionCell cell;  // of any length
  double linear = 0, square = 0;
};

struct AttentionReport {
  std::string command, table, device, device_name, isa;
  int threads = 1;
  bool stopped = false;          // before its last row
  bool planned = false;          // on meta: memory and costs, no times and no ceilings
  double copy = 0;               // bytes/s
  std::vector<NamedRate> flops;  // per dtype of the cells
  std::vector<AttentionPass> passes;
  AttentionClock clock;
  double datasheet = 0;
  std::vector<AttentionRow> rows;
  std::vector<MemoryLaw> laws;

  const AttentionRow* first(AttentionRow::Status status) const;  // null: none
};

// Throws Error for a variant that attention does not have.
void check_attention_request(const AttentionRequest& request);

// The request has passed check_attention_request(). A cell without room is a row like the others.
AttentionReport bench_attention(const AttentionRequest& request,
                                const std::function<void(const std::string&)>& progress);

// So many bytes that writing them leaves nothing else in the device's cache.
std::size_t flush_bytes(const Device& device);

}  // namespace kiln::cli
