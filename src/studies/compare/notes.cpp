#include "studies/compare/notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/plain_number.h"
#include "studies/compare/render.h"

namespace kiln {
namespace {

constexpr double kTold = 0.05;         // of the roofline: smaller gaps get no sentence
constexpr std::size_t kSentences = 4;  // the largest gaps

// --- the table of causes

std::string_view short_name(CauseKind kind) {
  constexpr std::array<std::string_view, kCauseKinds> kNames = {
      "recompute", "copies", "dispatch", "tiles", "small", "rate", "cache", "contention", "unexplained"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string cell(double ms) { return ms == 0 ? "" : fmt::format("{:.3f}", ms); }

std::vector<std::string> cause_line(std::string op, std::string pass, const Gap& gap,
                                    std::span<const CauseKind> kinds) {
  std::vector<std::string> line = {std::move(op), std::move(pass), fmt::format("{:.3f}", gap.ms())};
  for (const CauseKind kind : kinds) line.push_back(cell(gap.of(kind)));
  return line;
}

// --- sentences

std::string causes_text(const Gap& gap, std::size_t most) {
  std::string text;
  const std::size_t n = std::min(most, gap.causes.size());
  for (std::size_t i = 0; i < n; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", str(gap.causes[i]));
  return text;
}

bool told(const Gap& gap) { return !gap.causes.empty() && std::abs(gap.ms()) > kTold * gap.roofline; }

std::string op_sentence(const ComparedOp& op) {
  return fmt::format("{}{}{} takes {} ms, its roofline {}: {}.", op.op, op.pass.empty() ? "" : " ", op.pass,
                     plain(op.gap.measured), plain(op.gap.roofline), causes_text(op.gap, 3));
}

std::string step_sentence(const ComparedStep& s) {
  std::string text = fmt::format("The step takes {} ms, its roofline {}: ", plain(s.gap.measured, 4),
                                 plain(s.gap.roofline, 4));
  for (std::size_t i = 0; i < s.gap.causes.size(); ++i)
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", s.gap.causes[i].name(), plain(s.gap.causes[i].ms));
  return text + " ms.";
}

std::string prediction_sentence(const ComparedStep& s) {
  std::string text = fmt::format("Predicted: {} ms, {:.1f} % {} than measured", plain(*s.predicted, 4),
                                 100 * std::abs(*s.predicted / s.gap.measured - 1),
                                 *s.predicted < s.gap.measured ? "less" : "more");
  if (s.unknown > 0)
    text += fmt::format("; {} ms of it are calls of a kind the calibration has not seen", plain(s.unknown));
  return text + ".";
}

}  // namespace

TextTable gap_table(const ComparedStep& step) {
  std::vector<CauseKind> kinds;
  for (int i = 0; i < kCauseKinds; ++i) {
    const auto kind = static_cast<CauseKind>(i);
    const bool present = std::any_of(step.ops.begin(), step.ops.end(),
                                     [&](const ComparedOp& op) { return op.gap.of(kind) != 0; });
    if (present) kinds.push_back(kind);
  }
  TextTable table = {{"op", "pass", "gap ms"}};
  for (const CauseKind kind : kinds) table.front().emplace_back(short_name(kind));
  for (const ComparedOp& op : step.ops) table.push_back(cause_line(op.op, op.pass, op.gap, kinds));
  table.push_back(cause_line("step", "", step.gap, kinds));
  return table;
}

std::vector<std::string> compare_notes(const ComparedStep& s) {
  const StepRow& row = s.measured.row;
  if (!s.timed()) return {fmt::format("{}: {}: {}", name_of_step(row), name_of(row.status), row.reason)};
  std::vector<std::string> notes = {step_sentence(s)};
  if (s.predicted) notes.push_back(prediction_sentence(s));
  std::vector<const ComparedOp*> largest;
  for (const ComparedOp& op : s.ops) {
    if (op.calls > 0 && told(op.gap)) largest.push_back(&op);
  }
  std::stable_sort(largest.begin(), largest.end(), [](const ComparedOp* a, const ComparedOp* b) {
    return std::abs(a->gap.ms()) > std::abs(b->gap.ms());
  });
  if (largest.size() > kSentences) largest.resize(kSentences);
  for (const ComparedOp* op : largest) notes.push_back(op_sentence(*op));
  if (s.measured.attributed < 0.999)
    notes.push_back(fmt::format("Of {:.1f} % of the kernels' time no op is known; it is outside of ops.",
                                100 * (1 - s.measured.attributed)));
  if (row.gate == Gate::not_verified) notes.push_back(fmt::format("Not verified: {}.", row.reason));
  return notes;
}

std::string name_of_step(const StepRow& r) {
  const StepOptions& step = r.spec.step;
  std::string text = fmt::format("{}, {}, batch {} of {} tokens", r.size.name, name_of(r.spec.precision),
                                 step.batch, step.context);
  if (step.micro_steps > 1) text += fmt::format(", {} micro-steps", step.micro_steps);
  text += fmt::format(", {}, preset {}{}{}", name_of(r.spec.mode), r.preset, r.variants.empty() ? "" : " + ",
                      r.variants);
  if (r.spec.model.recompute != Recompute::none)
    text += fmt::format(", recompute {}", name_of(r.spec.model.recompute));
  if (r.captured) text += ", captured as a graph";
  return text;
}

}  // namespace kiln
