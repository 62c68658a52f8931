// Which communication of a step was hidden behind compute, bucket by bucket: when it was ready, when it ran,
// and how much of it stalled the rank. Plain data and arithmetic; overlap_recorder.h fills it from a
// step that ran, overlap_replay.h from one that might have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln {

struct TimeSpan {
  double begin = 0, end = 0;
  double us() const { return end - begin; }
};

struct ReadyGradient {
  std::string name;
  int64_t bytes = 0;   // on the wire
  int64_t offset = 0;  // in the gradient arena: buckets are filled in its order
  double ready = 0;
};

struct LedgerEntry {
  std::string name, collective;
  int64_t bytes = 0;   // what this rank brings
  bool bucket = true;  // of gradients; else one that stalls the rank, as the norm does
  double ready = 0;    // its last gradient was complete on this rank
  double start = 0;    // the link was free and every rank had come
  double end = 0;
  double exposed = 0;  // of start to end, while the rank was stalled
  double slack = 0;    // how much later it could have ended without a stall
};

// Microseconds from the beginning of the step, all of them.
struct OverlapLedger {
  double backward_begin = 0, backward_end = 0;
  double sums_end = 0;  // every gradient was in place
  double end = 0;       // of the step
  std::vector<ReadyGradient> gradients;
  std::vector<TimeSpan> waits;  // the rank was stalled, by the link or by the other ranks
  std::vector<LedgerEntry> entries;
};

// Fills in exposed and slack of every entry from the waits. A bucket is needed when backward is over.
void check_entries(OverlapLedger& ledger);

struct OverlapTotals {
  double communication = 0;  // us in which a collective ran
  double exposed = 0;        // of them, those that stalled the rank
  double waited = 0;         // us the rank was stalled, for whatever reason
  double hidden_share() const { return communication > 0 ? 1 - exposed / communication : 1; }
  double others() const { return waited - exposed; }  // it waited for other ranks, not for the link
};
OverlapTotals totals_of(const OverlapLedger& ledger);

// Microseconds that lie in one of the spans, which may overlap, and in `within`.
double covered(std::vector<TimeSpan> spans, const TimeSpan& within);

}  // namespace kiln
