// The model sizes known by name: those of the 2025 and 2026 course tables, one of the leaderboard, one of the
// parallelism exercise, and small ones for a laptop. There is no plain "xl": it is a different
// model in each table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/config.h"

namespace kiln {

enum class SizeKind {
  llama,     // embedding, blocks of attention and SwiGLU, untied head
  ffn_only,  // blocks of two linears and nothing else: for calculations, it cannot be built
};

std::string_view name_of(SizeKind kind);

struct ModelSize {
  std::string_view name;
  SizeKind kind;
  int64_t d_model, d_ff, layers;
  int64_t heads, vocab;  // 0 where there is none
  std::string_view note;

  int64_t head_dim() const { return heads == 0 ? 0 : d_model / heads; }
};

std::span<const ModelSize> model_sizes();

// Throws Error(usage) for an unknown name, with the nearest one.
const ModelSize& find_model_size(std::string_view name);

// Throws Error(usage) for a kind that cannot be built.
ModelConfig config_of(const ModelSize& size);

int64_t param_count(const ModelSize& size);

// Weights, gradients and both Adam moments in fp32: 16 bytes a parameter.
inline constexpr int64_t kFp32StateBytes = 16;

// Model FLOPs of training on one token: 6 x non-embedding parameters (the head counts, the lookup table does
// not) + 6 x layers x d_model x context for causal attention, its backward counted as twice its forward.
double train_flops_per_token(const ModelSize& size, int64_t context);

}  // namespace kiln
