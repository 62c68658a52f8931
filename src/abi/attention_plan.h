// Which rows of attention's table a call takes, and on what: the whole batch at once, or, where lengths vary
// and only the host knows them, one sequence after the other.
#pragma once

#include <vector>

#include "abi/attention_args.h"

namespace kiln::abi {

struct Launch {
  AttentionProblem p;
  int64_t first_query = 0, first_key = 0;  // rows of the tensors
  const Variant<AttentionOp>* row = nullptr;
};

struct Plan {
  std::vector<Launch> launches;
  std::size_t workspace = 0;   // bytes, of the row that takes most
  std::size_t lse_offset = 0;  // one by one: in the workspace, the place of a sequence's lse
};

// The first row of the table that can run this here, writes lse and is deterministic unless that was waived;
// throws with every reason where there is none. With atomics allowed, the chosen row's atomic form where
// there is one.
const Variant<AttentionOp>& choose(RankContext& ctx, const AttentionProblem& p, std::string_view wanted,
                                   bool allow_atomic);

Plan make_plan(RankContext& ctx, const CheckedProblem& problem, Pass pass);

}  // namespace kiln::abi
