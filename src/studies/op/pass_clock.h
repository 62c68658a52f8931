// The clock of `kiln bench op`: one pass of one variant, timed.
#pragma once

#include "ops/cases/run_case.h"
#include "studies/op/op.h"

namespace kiln {

// Fills in row.timing; the row's cost is known. On a GPU by marks on its stream, with several sets of tensors
// that alternate where one would stay in the cache between two calls.
void time_form(RankContext& ctx, const OpCase& c, const CaseData& data, const BenchForm& form, BenchRow& row,
               const StopAsked& stop);

// So many sets that each has left the cache when its turn comes again.
int sets_to_rotate(double bytes_of_a_call, double cache);

}  // namespace kiln
