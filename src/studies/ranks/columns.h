// What rows and documents of every study of several ranks have in common.
#pragma once

#include <string>
#include <vector>

#include "report/tables/study_page.h"
#include "rows/schema.h"
#include "studies/format.h"
#include "studies/ranks/rank_steps.h"

namespace kiln {

// The model, where and how it was trained, and the link; and their columns. `batch`: global, over all ranks.
Json ranks_json(const RanksStudy& study, int64_t batch, int ranks);
std::span<const ColumnForm> ranks_forms();
template <class Row>
Column<Row> ranks_columns(Json (*get)(const Row&)) {
  return {.key = "", .title = "", .get = get, .group = ranks_forms()};
}

// Rows by some of a schema's columns, in the order of `keys`; a column that is only shown goes by its title.
// No keys: as the schema says.
PageTable table_of(std::string heading, std::span<const ColumnForm> columns, std::span<const Json> rows,
                   std::initializer_list<std::string_view> keys = {});

// What a study of steps ran on, in words: "link=modelled (...)" with it.
std::string link_text(const RanksStudy& study);

template <class Report>
Json ranks_document(const std::string& command, const Report& r, const std::vector<Json>& rows) {
  return {{"command", command},      {"device", r.device}, {"host", host_json(r)},
          {"build_id", own_build()}, {"rows", rows},       {"stopped", r.stopped}};
}

}  // namespace kiln
