// Why first steps are slow: the same step again and again from a cold start, each waited for, and the first
// one's excess over the later ones taken apart. In a process that has done nothing else, or the excess is
// elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autograd/rank_context.h"
#include "studies/step/synthetic_step.h"

namespace kiln {

// What was measured around a first step; seconds.
struct FirstStepFacts {
  bool gpu = false;
  double first = 0;   // the step
  double steady = 0;  // the median of the later half of the steps
  double second = 0;  // the better of the two that follow the first (and the capture, where there is one)
  // The host's time inside ops of the first step, and of a warm one that runs op by op as well.
  double products_first = 0, products_warm = 0;  // matmuls
  double others_first = 0, others_warm = 0;
  // What the allocator took from the device during the first step, taken again: the asking, and on the CPU
  // the first touch of every page. inside_ops: the part of the asking that fell into ops.
  double growth = 0, growth_inside_ops = 0, touch = 0;
  int64_t segments = 0, segment_bytes = 0;
  int64_t faults_first = 0, faults_warm = 0;  // minor page faults of the process
  // Those inside ops, beyond a warm step's: a library that is used for the first time is read page by page.
  int64_t faults_in_products = 0, faults_in_others = 0;
  double fault = 0;  // one of them, of a small page
};

// They add up to first - steady.
struct FirstStepParts {
  double excess = 0;
  double module_load = 0;       // code that is brought to the GPU when an op runs for the first time
  double matrix_library = 0;    // the matrix library's first calls: its own kernels, and choosing algorithms
  double allocator_growth = 0;  // memory taken from the device
  double page_faults = 0;       // memory of the host touched for the first time
  double clock_ramp = 0;        // what the second step still has over the later ones: clocks, caches
  double hidden = 0;            // of all these: overlapped with the device's own work
  double rest = 0;              // what none of these explains; below 0 where they overlap
};

FirstStepParts split_first_step(const FirstStepFacts& f);

struct WarmupRun {
  double handles = 0;         // seconds to the rank's context: streams, threads, the library's handles
  double model = 0;           // to weights and tokens
  std::vector<double> steps;  // seconds of every step, warm-ups first
  int warmups = 0;
  bool captured = false;
  MemoryStats memory;  // of those steps
  FirstStepFacts facts;
  FirstStepParts parts;
};

// `prepare` is called with the rank before the model is made: GEMM choices, for example.
WarmupRun run_warmup(const RankOptions& rank, const StepSpec& spec, int warmups, int steps,
                     const std::function<void(RankContext&)>& prepare = {});

}  // namespace kiln
