// The options that every study of several ranks takes, and how they are read.
#pragma once

#include <string>

#include "studies/ranks/rank_steps.h"
#include "kiln/cmd.h"

namespace CLI {
class App;
}

namespace kiln::cli {

struct TypedRanks {
  std::string size = "micro", link, batch, context, dtype = "fp32", warmups, steps, threads = "0", vocab;
};

// --size, --link, --ctx, --dtype, --vocab and --threads; the others' words are each study's own.
void add_ranks_options(CLI::App& study, TypedRanks& typed);

// All but the device. `least_warmups`: some studies learn from the first steps.
void read_ranks_study(const TypedRanks& typed, const CommonOptions& common, int least_warmups,
                      RanksStudy& study);
Device device_of(const CommonOptions& common);  // Error where that GPU is not here

}  // namespace kiln::cli
