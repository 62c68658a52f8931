#include "abi/attention_plan.h"

#include <algorithm>

#include "ops/select.h"

namespace kiln::abi {
namespace {

using Row = Variant<AttentionOp>;

bool writes_lse(const Row& row) {
  return std::any_of(row.saves.begin(), row.saves.end(),
                     [](const auto& s) { return std::string_view(s.name) == "lse"; });
}

bool is_atomic(const Row& row) { return std::string_view(row.name).find("atomic") != std::string_view::npos; }

std::string why_not_here(RankContext& ctx, const Row& row, const AttentionProblem& p, bool allow_atomic) {
  if (!writes_lse(row)) return "keeps the matrix of probabilities where this interface returns lse";
  if (is_atomic(row) && !allow_atomic) return "may give other bits each time; allow_atomic = 1 takes it";
  return why_not<AttentionOp>(row, p, ctx.traits(), ctx.device().is_meta());
}

[[noreturn]] void explain(RankContext& ctx, const AttentionProblem& p, std::string_view wanted,
                          bool allow_atomic) {
  std::vector<std::string> names, reasons;
  for (const Row& row : AttentionOp::rows()) {
    if (row.device != ctx.traits().type) continue;
    if (writes_lse(row) || wanted == row.name) names.emplace_back(row.name);
    if (wanted.empty() || wanted == row.name)
      reasons.push_back(cat(row.name, ": ", why_not_here(ctx, row, p, allow_atomic)));
  }
  throw_no_variant(AttentionOp::kName, wanted, names, reasons);
}

std::size_t workspace_of(const Launch& l, Pass pass) {
  return l.row->workspace != nullptr ? l.row->workspace(l.p, pass) : 0;
}

}  // namespace

const Row& choose(RankContext& ctx, const AttentionProblem& p, std::string_view wanted, bool allow_atomic) {
  const auto runs = [&](const Row& row) {
    return row.device == ctx.traits().type && why_not_here(ctx, row, p, allow_atomic).empty();
  };
  const Row* chosen = nullptr;
  for (const Row& row : AttentionOp::rows()) {
    if ((wanted.empty() || wanted == row.name) && runs(row)) {
      chosen = &row;
      break;
    }
  }
  if (chosen == nullptr) explain(ctx, p, wanted, allow_atomic);
  if (!wanted.empty() || !allow_atomic || is_atomic(*chosen)) return *chosen;
  for (const Row& row : AttentionOp::rows()) {
    const bool form_of_chosen = std::string_view(row.name).starts_with(chosen->name) && is_atomic(row);
    if (form_of_chosen && runs(row)) return row;
  }
  return *chosen;
}

Plan make_plan(RankContext& ctx, const CheckedProblem& problem, Pass pass) {
  Plan plan;
  const auto add = [&](const AttentionProblem& p, int64_t first_query, int64_t first_key) {
    Launch l{p, first_query, first_key, &choose(ctx, p, problem.variant, problem.allow_atomic)};
    plan.workspace = std::max(plan.workspace, workspace_of(l, pass));
    plan.launches.push_back(l);
  };
  if (!problem.one_by_one()) {
    add(problem.p, 0, 0);
    return plan;
  }
  for (int64_t b = 0; b < problem.p.B; ++b) {
    AttentionProblem p = problem.p;
    const auto at = static_cast<std::size_t>(b);
    p.B = 1;
    p.Tq = problem.cu_queries[at + 1] - problem.cu_queries[at];
    p.Tk = problem.cu_keys[at + 1] - problem.cu_keys[at];
    add(p, problem.cu_queries[at], problem.cu_keys[at]);
  }
  plan.lse_offset = round_up(plan.workspace, kWorkspaceAlignment);
  plan.workspace = plan.lse_offset + static_cast<std::size_t>(problem.p.H * problem.p.Tq) * sizeof(float);
  return plan;
}

}  // namespace kiln::abi
