// What a caller of the C interface hands in: checked, then seen as kiln's own types.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kiln/attention.h"
#include "ops/attention/attention.h"

namespace kiln::abi {

inline constexpr std::size_t kTensorAlignment = 16;
inline constexpr std::size_t kWorkspaceAlignment = 256;

struct CheckedProblem {
  AttentionProblem p;                            // Tq and Tk are the longest where lengths vary
  Sequences sequences;                           // where p.varlen
  std::span<const int32_t> cu_queries, cu_keys;  // in host memory, else: one sequence after the other
  std::string_view variant;
  bool allow_atomic = false;

  bool one_by_one() const { return !cu_queries.empty(); }
  int64_t batches() const { return one_by_one() ? 1 : p.batches(); }  // of a tensor
  int64_t query_rows() const { return one_by_one() ? cu_queries.back() : p.query_rows(); }
  int64_t key_rows() const { return one_by_one() ? cu_keys.back() : p.key_rows(); }
};

// A CPU's offsets are in host memory, whichever of the two is given.
CheckedProblem checked_problem(const kiln_attention_problem* problem, Device device);

enum class Side { queries, keys };
enum class Use { read, written, written_if_given };

struct Argument {
  const char* name;
  const kiln_attention_view* view;
  Side side;
  Use use;
};

// Every view is there, aligned, of rows that do not overlap; what is written is not one of the others.
void check_views(const CheckedProblem& problem, std::span<const Argument> arguments);
void check_lse(const CheckedProblem& problem, const float* lse);

// Rows first .. of a checked view, as much of them as `p` has on that side; undefined for a null view.
Tensor tensor_of(const kiln_attention_view* view, const AttentionProblem& p, Side side, int64_t first,
                 Device device);

}  // namespace kiln::abi
