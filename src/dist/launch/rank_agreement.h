// All-gather of a few numbers or a line of text per rank, outside of steps. How
// ranks agree on a plan, and on whether all of them succeeded.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/comm/communicator.h"

namespace kiln {

// By rank. Each rank may bring another number of them. Collective, as all of these are.
std::vector<std::vector<double>> all_gather_numbers(RankContext& ctx, Communicator& comm,
                                                    std::span<const double> mine, std::string_view subject);
std::vector<std::string> all_gather_text(RankContext& ctx, Communicator& comm, std::string_view mine,
                                         std::string_view subject);

// Runs `work` on every rank; returns when all have. Where it threw on some, it throws on all: there the same
// error, elsewhere one that names the first such rank and says what it said.
void all_or_throw(RankContext& ctx, Communicator& comm, std::string_view subject,
                  const std::function<void()>& work);

}  // namespace kiln
