// What the ZeRO paper says a rank keeps and sends, for the stages 0 (DDP), 1, 2 and 3 (FSDP), and the
// simple form of stage 1. P parameters, N ranks:
//
//   stage      keeps, whole            keeps, its 1/N             sends in a step
//   0          weights, grads, optim                              2 P
//   1 simple   weights, low, grads     moments                    3 P: all-reduce and broadcast
//   1          weights, grads          low, moments               2 P
//   2          weights                 low, grads, moments        2 P
//   3                                  all                        3 P: weights twice, gradients once
//
// Sent is what a ring of N ranks makes a rank send: (N-1)/N of it. `low` are the 16 bits below split weights.
#pragma once

#include <cstdint>
#include <string_view>

#include "autograd/precision.h"
#include "perf/comm/overlap_ledger.h"

namespace kiln {

struct ZeroTheory {
  double weights = 0, low = 0, grads = 0, moments = 0;  // bytes a rank keeps between steps
  double sent = 0;                                      // bytes a rank sends in a step
  double volume = 0;  // 2 or 3: the paper's count, in times the parameters, where all are of one width

  double state() const { return weights + low + grads + moments; }
};

// `stage` is one of 0, 1:simple, 1, 2, 3; of one micro-step, gradients in their own width on the wire.
ZeroTheory zero_theory(std::string_view stage, const PrecisionPolicy& policy, int64_t parameters, int ranks);

// The same from the collectives a step made: of all of them but those on a handful of scalars.
double sent_bytes(const OverlapLedger& ledger, int ranks);

}  // namespace kiln
