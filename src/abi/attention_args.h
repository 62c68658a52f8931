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
  AttentionProblem p;  // Tq and Tk are the longest where lengths vary
  std::span<const int32_t> cu_queries, cu_keys;
  std::string_view variant;
  bool allow_atomic = false;

  bool lengths_vary() const { return !cu_queries.empty(); }
  int64_t batches() const { return lengths_vary() ? 1 : p.B; }  // of a tensor
  int64_t query_rows() const { return lengths_vary() ? cu_queries.back() : p.Tq; }
  int64_t key_rows() const { return lengths_vary() ? cu_keys.back() : p.Tk; }
};

CheckedProblem checked_problem(const kiln_attention_problem* problem);

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
