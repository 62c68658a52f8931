// An overlap ledger as a table, and what might have been as another.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "perf/comm/overlap_replay.h"
#include "report/tables/text_table.h"

namespace kiln {

// One line a collective; of more than `most` the first ones, and a line on the rest. Two columns of words.
TextTable ledger_table(const OverlapLedger& ledger, std::size_t most = 24);
nlohmann::ordered_json ledger_json(const OverlapLedger& ledger);

// One line each; the first is the step as it is. `floor_us`: no link and no buckets can do better than it.
TextTable what_if_table(std::span<const WhatIf> all, double measured_us, double floor_us);
nlohmann::ordered_json what_if_json(std::span<const WhatIf> all);

}  // namespace kiln
