// Where the ranks of a run come from, by the name of what carries their collectives. One row each; a rank's
// body is the same for all.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "dist/comm/communicator.h"

namespace kiln {

struct RankPlan {
  std::string transport = "auto";  // threads, ...; auto: `alone` for one rank, else threads
  int ranks = 1;
  RankOptions options;  // rank and world are filled in
  CommOptions comm;
};

using RankBody = std::function<void(RankContext&, Communicator&)>;

// Throws Error(usage), with the list, for a name there is no row for; Error(unavailable), with the reason,
// for one that cannot run here.
void check_transport(std::string_view name, int ranks);

// Runs `body` as every rank that this process is to be, and returns when all of those are done. The first
// error of a rank ends all of them and is thrown here.
void run_ranks(const RankPlan& plan, const RankBody& body);

}  // namespace kiln
