#include "studies/tune/tune_attention.h"

#include <cmath>
#include <limits>

#include "base/build_info.h"
#include "base/error.h"
#include "ops/renamed.h"
#include "studies/attention/check.h"
#include "studies/variant_check.h"
#include "train/run/tuned.h"

namespace kiln {
namespace {

constexpr double kLeastGain = 1.02;  // as for GEMMs: less is timer noise

RankOptions rank_for(const TuneAttentionRequest& r) {
  RankOptions o = options_for(r.device, 0, r.seed);
  const std::string_view name = current_variant(AttentionOp::kName, r.variant);
  if (!name.empty() && name != "auto") o.variants.set(AttentionOp::kName, name);
  return o;
}

// Two outputs in a format differ by its rounding, and by that of the probabilities in it.
double allowed_difference(DType dtype) { return 4 * (dtype == DType::bf16 ? 0x1p-7 : 0x1p-10); }

std::vector<float> output_of(RankContext& ctx, const AttentionCell& cell) {
  AttentionSet set(ctx, cell);
  set.forward();
  std::vector<float> wide(static_cast<std::size_t>(set.output().numel()));
  with_float(cell.dtype, [&](auto zero) {
    std::vector<decltype(zero)> host(wide.size());
    ctx.download(host.data(), set.output());
    for (std::size_t i = 0; i < host.size(); ++i) wide[i] = static_cast<float>(host[i]);
  });
  return wide;
}

TunedCell list_tiles(const TuneAttentionRequest& r, const RankOptions& rank, const AttentionCell& cell) {
  TunedCell tuned;
  tuned.cell = cell;
  tuned.variant = r.variant;
  try {
    tuned.variant = plan_attention(cell, rank).variant;
  } catch (const Error& error) {
    tuned.reason = error.what();
    return tuned;
  }
  for (const TileCandidate& c : tile_candidates(tuned.variant, cell.problem()))
    tuned.tiles.push_back({.candidate = c, .seconds = {}, .error = {}});
  if (tuned.tiles.empty()) tuned.reason = cat(tuned.variant, " has no tiles to choose from");
  return tuned;
}

void measure(const TuneAttentionRequest& r, RankOptions rank, TunedCell& tuned, const TuneNote& progress) {
  AttentionReferences references(r.device, 0, r.seed);
  std::vector<float> expected;
  const AttentionShape shape = shape_of(tuned.variant, tuned.cell.problem());
  for (std::size_t i = 0; i < tuned.tiles.size(); ++i) {
    TunedTiles& t = tuned.tiles[i];
    progress(
        cat(tuned.cell.str(), ": tiles ", i + 1, " of ", tuned.tiles.size(), ", ", t.candidate.tiles.str()));
    const AttentionChoice choice{shape, t.candidate.tiles};
    rank.attention_choices.use({&choice, 1});
    RankContext ctx(rank);
    if (const SampledResult right = references.of(tuned.cell).check(ctx); !right.passed) {
      t.error = cat("it is not what naive gives: ", right.reason);
      continue;
    }
    std::vector<float> o = output_of(ctx, tuned.cell);
    if (expected.empty())
      expected = std::move(o);  // the default
    else
      t.difference = worst_row_difference(o, expected, tuned.cell.d);
    if (!(t.difference <= allowed_difference(tuned.cell.dtype))) {
      t.error = cat("its output is ", t.difference, " from the default's; ",
                    allowed_difference(tuned.cell.dtype), " is rounding");
      continue;
    }
    t.seconds = time_attention(ctx, tuned.cell, {AttentionPass::forward}, r.clock).passes.at(0).p50;
  }
  choose_tiles(tuned);
}

}  // namespace

std::optional<AttentionChoice> TunedCell::choice() const {
  for (const TunedTiles& t : tiles) {
    if (t.chosen)
      return AttentionChoice{shape_of(variant, cell.problem()), t.candidate.tiles, 1e6 * *t.seconds,
                             1e6 * default_seconds()};
  }
  return {};
}

void choose_tiles(TunedCell& cell) {
  TunedTiles* best = nullptr;
  for (TunedTiles& t : cell.tiles) {
    t.chosen = false;
    if (!t.error.empty() || !t.seconds) continue;
    // The default comes first, and the first bar is its time less the noise.
    const double bar = best == nullptr              ? std::numeric_limits<double>::infinity()
                       : best->candidate.is_default ? *best->seconds / kLeastGain
                                                    : *best->seconds;
    if (*t.seconds < bar) best = &t;
  }
  if (best != nullptr) best->chosen = true;
}

double worst_row_difference(const std::vector<float>& a, const std::vector<float>& b, int64_t width) {
  const auto row = static_cast<std::size_t>(width);
  double worst = 0;
  for (std::size_t begin = 0; begin + row <= b.size(); begin += row) {
    double apart = 0, size = 0;
    for (std::size_t i = begin; i < begin + row; ++i) {
      if (std::isnan(a[i]) && std::isnan(b[i])) continue;
      const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
      apart += d * d;
      size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
    }
    if (apart == 0) continue;
    const double relative = std::sqrt(apart / size);
    if (!(relative <= worst))
      worst = std::isnan(relative) ? std::numeric_limits<double>::infinity() : relative;
  }
  return worst;
}

TuneAttentionReport tune_attention(const TuneAttentionRequest& r, const std::string& out,
                                   const TuneNote& progress, const TuneNote& say) {
  TuneAttentionReport report;
  report.device = r.device.str();
  report.planned = r.device.is_meta();
  if (r.device.target != DeviceType::cuda)
    throw Error(cat("nothing to tune on ", r.device.str(), ": attention's tiles there are fixed"),
                "on a GPU there is a choice: use --device cuda", ErrorKind::unavailable);
  const RankOptions rank = rank_for(r);
  for (const AttentionCell& cell : r.cells) report.cells.push_back(list_tiles(r, rank, cell));
  if (report.planned) return report;

  const auto here = tune_place(r.device);
  if (!here) throw Error(cat(r.device.str(), " is not available"), {}, ErrorKind::unavailable);
  report.gpu = here->gpu;
  report.file = tune_path(out, *here);
  check_tune_path(report.file);
  TuneFile file = earlier_choices(report.file, *here, say);
  const LoadWatch load(r.device);
  for (TunedCell& tuned : report.cells) {
    if (tuned.tiles.empty()) continue;
    try {
      measure(r, rank, tuned, progress);
    } catch (const Error& error) {  // no memory for it, mostly
      tuned.tiles.clear();
      tuned.reason = error.what();
    }
    if (const auto choice = tuned.choice()) {
      file = merged(file, {*here, build_info().build_id, {}, {*choice}});
      write_tune_file(report.file, file);  // after each: what was measured is kept whatever comes next
    }
  }
  progress("");
  report.load = load.load();
  report.choices = file.attention.size();
  return report;
}

}  // namespace kiln
