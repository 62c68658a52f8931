// The shape of a LLaMA-style decoder.
#pragma once

#include <cstdint>
#include <string>

#include "model/compile_mode.h"
#include "model/recompute.h"
#include "ops/rope/rope_scaling.h"

namespace kiln {

struct ModelConfig {
  int64_t vocab = 256;
  int64_t d_model = 64;
  int64_t d_ff = 128;
  int64_t layers = 1;
  int64_t heads = 4;
  int64_t kv_heads = 4;
  int64_t head_width = 0;  // values of one head; 0: d_model / heads
  float norm_eps = 1e-5f;
  double rope_theta = 10000;  // the slowest pair of a head turns once in about 2 pi theta tokens
  RopeScaling rope_scaling = {};
  bool tied = false;      // the head uses the embedding's weight
  bool fused_qkv = true;  // one matmul for q, k and v; off: three, on row views of the same buffer
  bool fused_gate_up = true;
  bool fused_linear_ce = true;  // head and loss as one op; off: the whole logits, then their loss
  Recompute recompute = Recompute::none;
  CompileMode compile = CompileMode::none;

  int64_t window = 0;  // keys a query sees at most, of models trained so; 0: all before it

  int64_t head_dim() const { return head_width > 0 ? head_width : d_model / heads; }
};

// "llama3 x8 from 8192"; "none".
std::string text_of(const RopeScaling& scaling);

// A window of keys is there for models that were trained with it; kiln's attention sees all keys, which is
// the same up to as many tokens. Throws Error(usage) for more.
void check_context(const ModelConfig& c, int64_t context);

// Throws Error(usage) for a shape that cannot be built, naming both numbers.
void check_config(const ModelConfig& c);

}  // namespace kiln
