// An overlap ledger as a table, and its replays as another.
#pragma once

#include <span>

#include "base/json.h"
#include "perf/comm/overlap_replay.h"
#include "report/tables/text_table.h"

namespace kiln {

// One line a collective; of more than `most` the first ones, and a line on the rest. Two columns of words.
TextTable ledger_table(const OverlapLedger& ledger, std::size_t most = 24);
Json ledger_json(const OverlapLedger& ledger);

// One line each; the first is the step as it is. `floor_us`: no link and no buckets can do better than it.
TextTable what_if_table(std::span<const WhatIf> all, double measured_us, double floor_us);
Json what_if_json(std::span<const WhatIf> all);

}  // namespace kiln
