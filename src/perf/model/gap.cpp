#include "perf/model/gap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/plain_number.h"

namespace kiln {
namespace {

using Amounts = std::array<double, kCauseKinds>;

double& of(Amounts& amounts, CauseKind kind) { return amounts[static_cast<std::size_t>(kind)]; }
double of(const Amounts& amounts, CauseKind kind) { return amounts[static_cast<std::size_t>(kind)]; }

bool fits(const CallEvidence& c, const RunFacts& facts) { return c.bytes > 0 && c.bytes <= facts.cache; }

// Of one call. What is taken first is what is known best: the shape's own arithmetic, then what was measured
// of any call, then what was calibrated of such calls.
Amounts causes_of(const CallEvidence& c, const RunFacts& facts) {
  Amounts a{};
  if (c.recomputed)
    of(a, CauseKind::recompute) = c.roofline;
  else if (c.copy)
    of(a, CauseKind::copies) = c.roofline;
  of(a, CauseKind::dispatch) = c.before;
  of(a, CauseKind::contention) = c.typical - c.best;
  double rest = c.best - c.roofline;
  const auto take = [&](CauseKind kind, double most) {
    const double part = std::clamp(most, 0.0, rest);
    of(a, kind) = part;
    rest -= part;
    return part;
  };
  if (rest < 0) {
    // Without its bytes a call still has its operations to do.
    const double least = fits(c, facts) ? c.computing - c.roofline : 0;
    of(a, CauseKind::cache) = std::max(rest, std::min(least, 0.0));
    return a;
  }
  const double known =
      take(CauseKind::tiles, c.padding) + take(CauseKind::small_call, facts.fixed_ms - c.roofline);
  if (c.predicted) take(CauseKind::shape_rate, *c.predicted - c.roofline - known);
  return a;
}

// What the sentences of evidence are made of.
struct Sums {
  int calls = 0, recomputed = 0, copies = 0, padded = 0, small = 0, cached = 0, predicted = 0;
  double computing = 0, padding = 0;                // of those padded
  double predicted_ms = 0, predicted_roofline = 0;  // of those predicted
  double best = 0, typical = 0, largest = 0;
};

Sums sums_of(std::span<const CallEvidence> calls, const RunFacts& facts) {
  Sums s;
  for (const CallEvidence& c : calls) {
    const Amounts a = causes_of(c, facts);
    ++s.calls;
    s.recomputed += c.recomputed;
    s.copies += c.copy && !c.recomputed;
    s.best += c.best;
    s.typical += c.typical;
    s.small += of(a, CauseKind::small_call) > 0;
    if (of(a, CauseKind::tiles) > 0) {
      ++s.padded;
      s.computing += c.computing;
      s.padding += c.padding;
    }
    if (of(a, CauseKind::shape_rate) > 0) {
      ++s.predicted;
      s.predicted_ms += *c.predicted;
      s.predicted_roofline += c.roofline;
    }
    if (of(a, CauseKind::cache) < 0) {
      ++s.cached;
      s.largest = std::max(s.largest, c.bytes);
    }
  }
  return s;
}

std::string calls(int n) { return fmt::format("{} call{}", n, n == 1 ? "" : "s"); }
std::string ms_text(double ms) { return plain(ms, 3) + " ms"; }
std::string mib(double bytes) { return plain(bytes / 0x1p20, 3) + " MiB"; }

std::string dispatch_evidence(const Sums& s, const RunFacts& facts, const StepEdges& edges, double ms) {
  const char* nothing = facts.kernels ? "no kernel ran" : "the host was between calls of ops";
  std::string text = fmt::format("{} for {}", nothing, ms_text(ms));
  const double between = ms - edges.outside;
  if (s.calls > 0)
    text += fmt::format(", {} us before each of {}", plain(1e3 * between / s.calls, 3), calls(s.calls));
  if (edges.outside != 0)
    text += fmt::format("; {} of it before the first and after the last", ms_text(edges.outside));
  return text;
}

std::string contention_evidence(const Sums& s, const RunFacts& facts, const StepEdges& edges) {
  std::string text;
  if (s.calls > 0)
    text = fmt::format("over {} steps the median is {}, the best {}", facts.steps, ms_text(s.typical),
                       ms_text(s.best));
  if (edges.residual != 0)
    text +=
        fmt::format("{}the median step is {} {} than the sum of its parts' medians", text.empty() ? "" : "; ",
                    ms_text(std::abs(edges.residual)), edges.residual > 0 ? "longer" : "shorter");
  if (facts.load > 0)
    text += fmt::format("; load average {} on {} processor{}", plain(facts.load, 3), facts.processors,
                        facts.processors == 1 ? "" : "s");
  return text;
}

std::string unexplained_evidence(const RunFacts& facts, double ms) {
  if (ms < 0) return "faster than the roofline, and the cache does not explain it";
  return facts.calibrated ? "longer than calibrated calls of these shapes take"
                          : "no calibration says what calls of these shapes take";
}

std::string evidence_of(CauseKind kind, double ms, const Sums& s, const RunFacts& facts,
                        const StepEdges& edges) {
  switch (kind) {
    case CauseKind::recompute:
      return fmt::format("{} run again for backward, {} at the roofline", calls(s.recomputed), ms_text(ms));
    case CauseKind::copies:
      return fmt::format("{} that the model's formula does not have, {} at the roofline", calls(s.copies),
                         ms_text(ms));
    case CauseKind::dispatch:
      return dispatch_evidence(s, facts, edges, ms);
    case CauseKind::tiles:
      return fmt::format("whole tiles are {:.3f} times the operations in {}", 1 + s.padding / s.computing,
                         calls(s.padded));
    case CauseKind::small_call:
      return fmt::format("the smallest call takes {} us here; {} with a roofline below it",
                         plain(1e3 * facts.fixed_ms, 3), calls(s.small));
    case CauseKind::shape_rate:
      return fmt::format("calibrated calls like these {} take {}, their roofline {}", s.predicted,
                         ms_text(s.predicted_ms), ms_text(s.predicted_roofline));
    case CauseKind::cache:
      return fmt::format("{} of {} or less; the cache holds {}", calls(s.cached), mib(s.largest),
                         mib(facts.cache));
    case CauseKind::contention:
      return contention_evidence(s, facts, edges);
    case CauseKind::unexplained:
      return unexplained_evidence(facts, ms);
  }
  return {};
}

}  // namespace

std::string_view name_of(CauseKind kind) {
  constexpr std::array<std::string_view, kCauseKinds> kNames = {
      "recompute",          "copies",         "dispatch",   "tile padding", "small calls",
      "rate at this shape", "cache-resident", "contention", "unexplained"};
  return kNames[static_cast<std::size_t>(kind)];
}

double Gap::of(CauseKind kind) const {
  const auto found =
      std::find_if(causes.begin(), causes.end(), [&](const Cause& c) { return c.kind == kind; });
  return found == causes.end() ? 0 : found->ms;
}

Gap explain(std::span<const CallEvidence> all, const RunFacts& facts, const StepEdges& edges) {
  Gap gap;
  gap.measured = edges.outside + edges.residual;
  Amounts sum{};
  of(sum, CauseKind::dispatch) = edges.outside;
  of(sum, CauseKind::contention) = edges.residual;
  double magnitude = std::abs(gap.measured);
  for (const CallEvidence& c : all) {
    gap.measured += c.typical + c.before;
    gap.roofline += c.in_theory() ? c.roofline : 0;
    magnitude += c.typical + c.before + c.roofline;
    const Amounts own = causes_of(c, facts);
    for (std::size_t i = 0; i < own.size(); ++i) sum[i] += own[i];
  }
  double& rest = of(sum, CauseKind::unexplained);
  rest = gap.ms();
  for (std::size_t i = 0; i + 1 < sum.size(); ++i) rest -= sum[i];
  if (std::abs(rest) < 1e-12 * magnitude) rest = 0;  // of adding up, in another order
  const Sums sums = sums_of(all, facts);
  for (int i = 0; i < kCauseKinds; ++i) {
    const auto kind = static_cast<CauseKind>(i);
    const double ms = of(sum, kind);
    if (ms != 0) gap.causes.push_back({kind, ms, evidence_of(kind, ms, sums, facts, edges)});
  }
  std::stable_sort(gap.causes.begin(), gap.causes.end(),
                   [](const Cause& a, const Cause& b) { return std::abs(a.ms) > std::abs(b.ms); });
  return gap;
}

std::string str(const Cause& c) { return fmt::format("{} {} ({})", c.name(), ms_text(c.ms), c.evidence); }

}  // namespace kiln
