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

// Whether a pass has nothing to write.
inline bool nothing_to_do(const AttentionProblem& p, Pass pass) {
  return p.B == 0 || (p.query_rows() == 0 && (pass == Pass::forward || p.key_rows() == 0));
}

struct Plan {
  std::vector<Launch> launches;
  std::size_t workspace = 0;   // bytes, of the row that takes most
  std::size_t lse_offset = 0;  // one by one: in the workspace, the place of a sequence's lse
};

// The row that takes a pass of this: the first of the table that can run it here, writes lse and is
// deterministic unless that was waived; throws with every reason where there is none. With atomics allowed,
// the chosen row's atomic form where there is one.
const Variant<AttentionOp>& choose(RankContext& ctx, const AttentionProblem& p, std::string_view wanted,
                                   bool allow_atomic, Pass pass = Pass::forward);

// `tensors`: those whose alignment decides between rows.
Plan make_plan(RankContext& ctx, const CheckedProblem& problem, Pass pass, std::span<const Argument> tensors);

// Enough for any tensors, which a caller need not have yet.
std::size_t workspace_bytes(RankContext& ctx, const CheckedProblem& problem, Pass pass);

}  // namespace kiln::abi
