#include "abi/attention_plan.h"

#include <algorithm>

#include "ops/renamed.h"
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

const Row& choose(RankContext& ctx, const AttentionProblem& p, std::string_view asked, bool allow_atomic,
                  Pass pass) {
  const std::string_view wanted = current_variant(AttentionOp::kName, asked);
  const auto runs = [&](const Row& row) {
    return row.device == ctx.traits().type && why_not_here(ctx, row, p, allow_atomic).empty();
  };
  const auto may_take = [&](const Row& row) {
    if (!wanted.empty()) return wanted == row.name;
    return row.yields == nullptr || !row.yields(p, pass);
  };
  const Row* chosen = nullptr;
  for (const Row& row : AttentionOp::rows()) {
    if (may_take(row) && runs(row)) {
      chosen = &row;
      break;
    }
  }
  if (chosen == nullptr) explain(ctx, p, wanted, allow_atomic);
  if (!wanted.empty() || !allow_atomic || is_atomic(*chosen)) return *chosen;
  for (const Row& row : AttentionOp::rows()) {
    if (row.name == cat(chosen->name, "_atomic") && runs(row)) return row;
  }
  return *chosen;
}

Plan make_plan(RankContext& ctx, const CheckedProblem& problem, Pass pass,
               std::span<const Argument> tensors) {
  Plan plan;
  const auto add = [&](AttentionProblem p, int64_t first_query, int64_t first_key) {
    for (const Argument& a : tensors) {
      const int64_t first = a.side == Side::queries ? first_query : first_key;
      p.tma = p.tma && tma_takes(p, tensor_of(a.view, p, a.side, first, ctx.device()));
    }
    Launch l{p, first_query, first_key, &choose(ctx, p, problem.variant, problem.allow_atomic, pass)};
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
    if (!nothing_to_do(p, pass)) add(p, problem.cu_queries[at], problem.cu_keys[at]);
  }
  plan.lse_offset = round_up(plan.workspace, kWorkspaceAlignment);
  plan.workspace = plan.lse_offset + static_cast<std::size_t>(problem.p.H * problem.p.Tq) * sizeof(float);
  return plan;
}

std::size_t workspace_bytes(RankContext& ctx, const CheckedProblem& problem, Pass pass) {
  const std::size_t aligned = make_plan(ctx, problem, pass, {}).workspace;
  // One requested by name is refused where it does not take the tensors.
  if (!current_variant(AttentionOp::kName, problem.variant).empty()) return aligned;
  CheckedProblem other = problem;
  other.p.tma = false;
  return std::max(aligned, make_plan(ctx, other, pass, {}).workspace);
}

}  // namespace kiln::abi
