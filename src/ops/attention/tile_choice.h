// Which tiles a variant of attention takes for a problem: those chosen by measurement where the rank has a
// choice, else the default of the variant's table. Known on any machine; the CUDA dispatch asks here too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/attention/attention.h"

namespace kiln {

// What the forward pass of a variant may take, and which of them without a choice.
struct TileCandidate {
  AttentionTiles tiles;
  std::size_t shared_bytes = 0;  // of a block
  bool is_default = false;
};

// Whose forward runs: flash_hopper_atomic differs from flash_hopper in backward alone. A choice for one is a
// choice for both.
std::string_view tiles_variant(std::string_view variant);

// The default comes first. Empty: the variant has one shape of block, and nothing to choose.
std::vector<TileCandidate> tile_candidates(std::string_view variant, const AttentionProblem& p);

AttentionShape shape_of(std::string_view variant, const AttentionProblem& p);

// Error where the choice names tiles that this build has no kernel for.
AttentionTiles chosen_tiles(const AttentionChoices& choices, std::string_view variant,
                            const AttentionProblem& p);

// The first choice that names such tiles, in words; empty where there is none.
std::string why_no_such_tiles(std::span<const AttentionChoice> choices);

}  // namespace kiln
