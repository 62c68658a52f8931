// kiln's stored rows beside a peer's (bench/peers), joined where both measured the same thing on the same
// machine.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "report/tables/study_page.h"

namespace kiln {

// A line for each pair of steps, or for each cell of attention with its passes side by side. `columns`:
// which, in this order, by key; none: all that have a value. Rows without a passed gate, kiln's or the
// peer's, and rows that have no partner, are in the notes.
StudyPage peers_page(std::span<const Json> rows, std::span<const Json> peers,
                     const std::vector<std::string>& columns);

}  // namespace kiln
