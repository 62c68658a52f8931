// The clock of `kiln bench op`: one pass of one variant, timed.
#pragma once

#include "ops/cases/run_case.h"
#include "studies/op/op.h"

namespace kiln {

// Of a row whose cost is known. On a GPU by marks on its stream, with several sets of tensors that alternate
// where one would stay in the cache between two calls.
Timing time_form(RankContext& ctx, const OpCase& c, const CaseData& data, const BenchForm& form,
                 const BenchRow& row, const TimingOptions& options);

// So many sets that each has left the cache when its turn comes again.
int sets_to_rotate(double bytes_of_a_call, double cache);

}  // namespace kiln
