// A small model trained a few steps: what the seam tests compare in all its forms.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dist/strategy/strategy.h"
#include "model/llama.h"
#include "train/step.h"

namespace kiln {

struct TinyRun {
  ModelConfig model;
  Precision precision = Precision::fp32;
  StepOptions step;
  int steps = 4;
  uint64_t data_seed = 3;
  double lr = 1e-2;

  TinyRun();
};

// Everything a run ends with, bit for bit.
struct TinyResult {
  std::vector<std::byte> values, low;
  std::map<std::string, std::vector<std::byte>> state;  // the optimizer's
  std::vector<double> losses, norms;
  MemoryStats memory;  // of the whole run
  bool captured = false;
  friend bool same_bits(const TinyResult& a, const TinyResult& b) {
    return a.values == b.values && a.low == b.low && a.state == b.state && a.losses == b.losses &&
           a.norms == b.norms;
  }
};

// Deterministic tokens: the micro-batch with the given global number, `rows` sequences of it from
// `first_row`.
struct TinyBatch {
  std::vector<int32_t> tokens, targets;
  HostBatch host() const { return {tokens, targets}; }
};
TinyBatch tiny_batch(const TinyRun& run, int64_t number);

// Trains on ctx. Rank r of w takes micro-batches r, r + w, ... of each step.
TinyResult train_tiny(RankContext& ctx, const TinyRun& run, Strategy& strategy);
TinyResult train_tiny(const RankOptions& options, const TinyRun& run);  // a plain single process

std::vector<std::byte> fetch_bytes(RankContext& ctx, const Tensor& t);

}  // namespace kiln
