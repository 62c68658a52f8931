// The one decision of which row runs, for each pass: used for running, for sizing scratch and for listing
// what is available.
#pragma once

#include "autograd/tape.h"
#include "ops/renamed.h"
#include "ops/variant.h"

namespace kiln {

// Why `row` cannot run `problem` here; empty when it can.
template <class Op>
std::string why_not(const Variant<Op>& row, const typename Op::Problem& problem, const DeviceTraits& traits,
                    bool meta) {
  if (row.device != traits.type)
    return cat("runs on ", name_of(row.device), ", not on ", name_of(traits.type));
  if (row.forward == nullptr && !row.composed && !meta) return "left out of this build";
  return row.unsupported ? row.unsupported(problem, traits) : std::string();
}

// Throws: no row can run this. Lists every row with its reason, or suggests the nearest name.
[[noreturn]] void throw_no_variant(std::string_view op, std::string_view wanted,
                                   std::span<const std::string> names, std::span<const std::string> reasons);

template <class Op>
[[noreturn]] void explain_no_variant(RankContext& ctx, const typename Op::Problem& problem,
                                     std::string_view wanted) {
  std::vector<std::string> names, reasons;
  bool here = false;  // a row for this device says more than that another is for another
  for (const auto& row : Op::rows())
    here = here || (row.device == ctx.traits().type && (wanted.empty() || wanted == row.name));
  for (const auto& row : Op::rows()) {
    names.push_back(row.name);
    if (!wanted.empty() && wanted != row.name) continue;  // it may well run: it was not requested
    if (here && row.device != ctx.traits().type) continue;
    reasons.push_back(cat(row.name, " (", name_of(row.device),
                          "): ", why_not<Op>(row, problem, ctx.traits(), ctx.device().is_meta())));
  }
  throw_no_variant(Op::kName, wanted, names, reasons);
}

// Call option first, then the run's choice; empty: the table's order decides, each pass by itself.
template <class Op>
std::string_view wanted_variant(RankContext& ctx, std::string_view asked) {
  const std::string_view name = asked.empty() ? ctx.variants().find(Op::kName) : asked;
  return name.empty() ? name : current_variant(Op::kName, name);
}

// The first row that can run `problem`, of those that `may_take` lets through.
template <class Op, class MayTake>
const Variant<Op>* first_row(RankContext& ctx, const typename Op::Problem& problem, MayTake may_take) {
  const bool meta = ctx.device().is_meta();
  for (const Variant<Op>& row : Op::rows()) {
    if (row.device == ctx.traits().type && may_take(row) &&
        why_not<Op>(row, problem, ctx.traits(), meta).empty())
      return &row;
  }
  return nullptr;
}

// Of forward. A variant requested by name either runs or is an error; there is no silent fallback.
template <class Op>
const Variant<Op>& select(RankContext& ctx, const typename Op::Problem& problem, std::string_view asked) {
  Tape& tape = ctx.tape();
  const auto* chosen = static_cast<const Variant<Op>*>(tape.next_pinned_row(Op::kName));
  if (chosen != nullptr) {
    // Other strides or alignment than in forward: the row must not be run on them unseen.
    if (!why_not<Op>(*chosen, problem, ctx.traits(), ctx.device().is_meta()).empty())
      explain_no_variant<Op>(ctx, problem, chosen->name);
  } else {
    const std::string_view wanted = wanted_variant<Op>(ctx, asked);
    chosen = first_row<Op>(ctx, problem, [&](const Variant<Op>& row) {
      if (!wanted.empty()) return wanted == row.name;
      return row.yields == nullptr || !row.yields(problem, Pass::forward);
    });
    if (chosen == nullptr) explain_no_variant<Op>(ctx, problem, wanted);
  }
  tape.note_row(Op::kName, chosen);
  return *chosen;
}

// Of backward, among rows that save what forward's row saved; that row itself where it was requested by name.
template <class Op>
const Variant<Op>& select_backward(RankContext& ctx, const typename Op::Problem& problem,
                                   const Variant<Op>& forward, bool named) {
  const Variant<Op>* chosen = first_row<Op>(ctx, problem, [&](const Variant<Op>& row) {
    if (named) return &row == &forward;
    if (row.composed || !same_saves(row, forward)) return false;
    return row.yields == nullptr || !row.yields(problem, Pass::backward);
  });
  if (chosen == nullptr)
    explain_no_variant<Op>(ctx, problem, named ? std::string_view(forward.name) : std::string_view());
  return *chosen;
}

}  // namespace kiln
