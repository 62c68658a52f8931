// Which measured choices, of GEMM algorithms and of attention's tiles, a command takes: --tune FILE|auto|off.
// And where the commands that measure put them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "autograd/rank_context.h"
#include "device/device.h"
#include "train/run/run_folder.h"
#include "tune/tune_file.h"

namespace kiln {

// Of the device's GEMMs; nothing where they are kiln's own, and there is no choice.
std::optional<TunePlace> tune_place(const Device& device);

using Say = std::function<void(const std::string& line)>;

// auto: the file for this GPU in `folder`, where there is one and its choices hold here. A file that is named
// must be there and must hold. What was taken, or left, is reported in a line.
std::optional<TuneFile> find_tuning(const std::string& tune, const std::string& folder,
                                    const std::optional<TunePlace>& here, const Say& say);

// So that the rank goes by them.
void use_tuning(RankContext& ctx, const TuneFile& tuning);

// A training run takes its choices once, at its start, and keeps them in its folder: another algorithm has
// other last bits, and a resumed run must end in those of one that never stopped. One that started without
// choices continues without, whatever --tune says. Called before anything of the run is computed.
std::optional<TuneFile> tuning_of_run(const RunFolder& run, bool resumes, const std::string& tune,
                                      const std::optional<TunePlace>& here, const Say& say);

// The file that holds the choices for a place, in `out` or here.
std::string tune_path(const std::string& out, const TunePlace& here);
// Is there a place for the result? Better said now than after minutes.
void check_tune_path(const std::string& path);
// What the file holds already, where that still counts.
TuneFile earlier_choices(const std::string& path, const TunePlace& here, const Say& say);

}  // namespace kiln
