#include "ops/attention/tile_choice.h"

#include <algorithm>

#include "ops/attention/flash/flash_table.h"
#include "ops/attention/hopper/hopper_table.h"

namespace kiln {
namespace {

AttentionTiles tiles_of(const hopper::ForwardTiles& t) { return {t.queries(), t.keys, t.stages}; }

AttentionTiles default_tiles(std::string_view variant, const AttentionProblem& p) {
  if (variant == "flash_hopper") return tiles_of(hopper::default_forward_tiles(p.D, p.Tq, p.B * p.H * p.Tq));
  const flash::FlashTiles t = flash::flash_tiles(p.D);
  return {flash::flash_default_queries(t, p.B * p.H, p.Tq), flash::kTile, 2};
}

std::vector<TileCandidate> hopper_candidates(const AttentionProblem& p) {
  std::vector<TileCandidate> list;
  for (const hopper::ForwardTiles& t : hopper::kForwardTiles) {
    if (t.width == hopper_width(p.D)) list.push_back({tiles_of(t), t.bytes()});
  }
  return list;
}

std::vector<TileCandidate> flash_candidates(const AttentionProblem& p) {
  const flash::FlashTiles t = flash::flash_tiles(p.D);
  if (t.queries == t.few_queries) return {};
  std::vector<TileCandidate> list;
  for (int queries : {t.queries, t.few_queries}) {
    flash::FlashTiles block = t;
    block.queries = queries;
    list.push_back({{queries, flash::kTile, 2}, flash::flash_forward_bytes(block)});
  }
  return list;
}

AttentionProblem problem_of(const AttentionShape& s) {
  return {s.batch, s.queries, s.keys, s.heads, s.kv_heads, s.width, s.dtype, 1, s.causal};
}

// Nothing, or "flash_hopper has no tiles of ..., chosen for ...".
std::string why_not(const AttentionShape& shape, const AttentionTiles& tiles) {
  const auto candidates = tile_candidates(shape.variant, problem_of(shape));
  if (std::any_of(candidates.begin(), candidates.end(),
                  [&](const TileCandidate& c) { return c.tiles == tiles; }))
    return {};
  return cat("tiles of ", tiles.str(), " are chosen for ", shape.str(), ", and this kiln has none such");
}

}  // namespace

std::string_view tiles_variant(std::string_view variant) {
  return variant == "flash_hopper_atomic" ? "flash_hopper" : variant;
}

std::vector<TileCandidate> tile_candidates(std::string_view variant, const AttentionProblem& p) {
  const std::string_view kernels = tiles_variant(variant);
  const bool hopper = kernels == "flash_hopper";
  if ((!hopper && kernels != "flash") || (p.dtype != DType::bf16 && p.dtype != DType::f16)) return {};
  if (p.D > (hopper ? 128 : flash::kWidestHead)) return {};
  std::vector<TileCandidate> list = hopper ? hopper_candidates(p) : flash_candidates(p);
  const AttentionTiles usual = default_tiles(kernels, p);
  for (TileCandidate& c : list) c.is_default = c.tiles == usual;
  std::stable_partition(list.begin(), list.end(), [](const TileCandidate& c) { return c.is_default; });
  return list;
}

AttentionShape shape_of(std::string_view variant, const AttentionProblem& p) {
  return {std::string(tiles_variant(variant)), p.B, p.H, p.Hkv, p.Tq, p.Tk, p.D, p.dtype, p.causal};
}

AttentionTiles chosen_tiles(const AttentionChoices& choices, std::string_view variant,
                            const AttentionProblem& p) {
  if (!choices.empty()) {
    const AttentionShape shape = shape_of(variant, p);
    if (const AttentionTiles* chosen = choices.find(shape)) {
      if (const std::string why = why_not(shape, *chosen); !why.empty())
        throw Error(cat("[attention] ", why), "run `kiln tune attention` again, or use --tune off");
      return *chosen;
    }
  }
  return default_tiles(tiles_variant(variant), p);
}

std::string why_no_such_tiles(std::span<const AttentionChoice> choices) {
  for (const AttentionChoice& c : choices) {
    if (std::string why = why_not(c.shape, c.tiles); !why.empty()) return why;
  }
  return {};
}

}  // namespace kiln
