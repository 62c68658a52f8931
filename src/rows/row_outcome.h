// The columns with which the row of every study begins: what became of it, what its numerical check said, and
// why where it is not ok.
#pragma once

#include "rows/row_status.h"
#include "rows/schema.h"

namespace kiln {

Json outcome_json(const RowOutcome& outcome);

// In tables the gate, as a column.
std::span<const ColumnForm> outcome_forms();
// In none: of rows whose table is itself the comparison, as a rounding error is, or that are worked out.
std::span<const ColumnForm> stored_outcome_forms();

// outcome_columns<Line>([](const Line& l) { return outcome_json(l.row); })
template <class Row>
Column<Row> outcome_columns(Json (*get)(const Row&), std::span<const ColumnForm> forms = outcome_forms()) {
  return {.key = "", .title = "", .get = get, .group = forms};
}

// Of rows that all have the same status.
template <class Row, RowStatus kStatus>
Column<Row> same_outcome_columns() {
  return outcome_columns<Row>([](const Row&) { return outcome_json({.status = kStatus}); },
                              stored_outcome_forms());
}

}  // namespace kiln
