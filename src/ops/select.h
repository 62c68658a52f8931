// The one decision of which row runs: used for running, for sizing scratch and for listing what is available.
#pragma once

#include "autograd/tape.h"
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

// Throws: nobody can run this. Lists every row with its reason, or suggests the nearest name.
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
    if (!wanted.empty() && wanted != row.name) continue;  // it may well run: it was not asked for
    if (here && row.device != ctx.traits().type) continue;
    reasons.push_back(cat(row.name, " (", name_of(row.device),
                          "): ", why_not<Op>(row, problem, ctx.traits(), ctx.device().is_meta())));
  }
  throw_no_variant(Op::kName, wanted, names, reasons);
}

// Call option first, then the run's choice, then table order. A variant asked for by name either runs or is
// an error; nothing falls back in silence.
template <class Op>
const Variant<Op>& select(RankContext& ctx, const typename Op::Problem& problem, std::string_view wanted) {
  Tape& tape = ctx.tape();
  const Variant<Op>* chosen = static_cast<const Variant<Op>*>(tape.next_pinned_row(Op::kName));
  if (chosen == nullptr) {
    if (wanted.empty()) wanted = ctx.variants().find(Op::kName);
    const bool meta = ctx.device().is_meta();
    for (const Variant<Op>& row : Op::rows()) {
      if (row.device != ctx.traits().type || (!wanted.empty() && wanted != row.name)) continue;
      if (!why_not<Op>(row, problem, ctx.traits(), meta).empty()) continue;
      chosen = &row;
      break;
    }
    if (chosen == nullptr) explain_no_variant<Op>(ctx, problem, wanted);
  }
  tape.note_row(Op::kName, chosen);
  return *chosen;
}

}  // namespace kiln
