// The work of `kiln tune attention`: the tiles that attention's forward pass may take, each measured on each
// shape requested with a cold cache, as `kiln bench flash` does it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/attention/tile_choice.h"
#include "studies/attention/cell_set.h"
#include "studies/tune/tune.h"
#include "tune/tune_file.h"

namespace kiln {

struct TuneAttentionRequest {
  std::vector<AttentionCell> cells;
  std::string variant = "auto";  // the one a run takes
  AttentionClock clock;
  Device device;  // on meta the candidates are listed, and nothing is run
  uint64_t seed = 0;
};

// One candidate on one shape.
struct TunedTiles {
  TileCandidate candidate;
  std::optional<double> seconds;  // the median; nothing on meta, and where the result was wrong
  double difference = 0;          // of the output from the default's: the worst row's
  std::string error;
  bool chosen = false;
};

struct TunedCell {
  AttentionCell cell;
  std::string variant;            // the one that runs
  std::vector<TunedTiles> tiles;  // the default first
  std::string reason;             // where there are none, or none could run

  double default_seconds() const { return tiles.front().seconds.value_or(0); }
  // What the file will say. Nothing where nothing was measured.
  std::optional<AttentionChoice> choice() const;
};

struct TuneAttentionReport {
  std::string device, gpu;
  bool planned = false;  // on meta
  std::string file;      // where the choices were written
  std::vector<TunedCell> cells;
  std::size_t choices = 0;  // of tiles the file holds, those of earlier measurements with them
  HostLoad load;            // while they were measured
};

// Marks what is fastest. Other tiles than the default must be faster by more than the clock's noise; wrong
// ones are never chosen.
void choose_tiles(TunedCell& cell);

// How far apart two outputs are: the largest of the rows' relative distances, a row being one head of one
// query. Infinite where a NaN stands on one side alone.
double worst_row_difference(const std::vector<float>& a, const std::vector<float>& b, int64_t width);

// Throws Error(unavailable) for a device without a choice, before anything is run. `out` is the folder of the
// file.
TuneAttentionReport tune_attention(const TuneAttentionRequest& request, const std::string& out,
                                   const TuneNote& progress, const TuneNote& say);

}  // namespace kiln
