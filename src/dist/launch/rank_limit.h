// How many ranks a machine is given without being asked twice. A rank has threads, memory and a share of
// every other rank's waiting: 1000 of them on two cores took a machine down for 25 minutes.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

inline constexpr int kMostRanksPerCore = 4;

// Set by `kiln run --oversubscribe` for the command it runs.
inline constexpr const char* kOversubscribeVariable = "KILN_OVERSUBSCRIBE";

// Do ranks have to share cores? Those that wait then give theirs away at once.
bool shares_cores(int ranks, int cores);

// Throws Error(usage) where `ranks` are more than the cores take and nobody has said that it is meant.
// `option` is how they were requested, "--nproc".
void check_rank_count(std::string_view option, int ranks, int cores, bool oversubscribe);
// On this machine, with what the environment says.
void check_rank_count(std::string_view option, int ranks, bool oversubscribe);

// "a,b:4" names two machines: the most ranks that one of them gets. No names: this machine gets all.
int ranks_of_a_machine(int ranks, std::string_view hosts);

}  // namespace kiln
