#include "model/recompute.h"

#include <array>
#include <charconv>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/units.h"

namespace kiln {
namespace {

constexpr int64_t kMostBlocks = int64_t{1} << 20;
constexpr std::string_view kEvery = "every:", kPlan = "plan:", kBudget = "budget:";

int64_t read_count(std::string_view option, std::string_view text, std::string_view number,
                   std::string_view expected, const char* hint) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), n);
  if (error != std::errc() || end != number.data() + number.size() || n < 1 || n > kMostBlocks)
    throw Error(cat(option, " is '", text, "'; expected ", expected, " from 1 to ", kMostBlocks), hint,
                ErrorKind::usage);
  return n;
}

// "12GiB" where that is exact, else bytes.
std::string size_text(int64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {"", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (unit + 1 < kUnits.size() && bytes % 1024 == 0 && bytes != 0) {
    bytes /= 1024;
    ++unit;
  }
  return cat(bytes, kUnits[unit]);
}

void append(Recompute& r, const PlanRun& run) {
  if (r.run_count > 0 && r.runs[static_cast<std::size_t>(r.run_count - 1)].again == run.again) {
    int64_t& blocks = r.runs[static_cast<std::size_t>(r.run_count - 1)].blocks;
    blocks = run.blocks == 0 ? 0 : blocks + run.blocks;
    return;
  }
  if (r.run_count == Recompute::kMostRuns)
    throw Error(cat("a recompute plan has more than ", Recompute::kMostRuns, " runs of blocks"),
                "give neighbouring blocks the same pieces", ErrorKind::usage);
  r.runs[static_cast<std::size_t>(r.run_count++)] = run;
}

Recompute parse_plan(std::string_view option, std::string_view text) {
  constexpr const char* kHint = "plan:norms+swiglu*8,none*4 makes three pieces of the first 8 blocks again";
  Recompute r{.kind = Recompute::Kind::plan};
  for (std::string_view rest = text.substr(kPlan.size());;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view one = rest.substr(0, comma);
    const std::size_t star = one.find('*');
    PlanRun run{parse_pieces(option, one.substr(0, star)), 0};
    if (star != std::string_view::npos)
      run.blocks = read_count(option, text, one.substr(star + 1), "PIECES*BLOCKS with BLOCKS", kHint);
    else if (comma != rest.size())
      throw Error(cat(option, " is '", text, "': only its last run may leave out *BLOCKS"), kHint,
                  ErrorKind::usage);
    append(r, run);
    if (comma == rest.size()) return r;
    rest.remove_prefix(comma + 1);
  }
}

Recompute parse_budget(std::string_view option, std::string_view text) {
  const std::string_view size = text.substr(kBudget.size());
  std::size_t bytes = 0;
  try {
    bytes = parse_bytes(size, option).value;
  } catch (const Error&) {
    bytes = 0;  // said below, with the whole value
  }
  if (bytes == 0 || bytes > static_cast<std::size_t>(INT64_MAX))
    throw Error(cat(option, " is '", text, "'; expected budget:SIZE with a size like 24GiB or 800MiB"),
                "it is the peak of the whole step: weights, gradients and optimizer too", ErrorKind::usage);
  return Recompute::within(static_cast<int64_t>(bytes));
}

}  // namespace

Recompute Recompute::plan(std::initializer_list<PlanRun> runs) {
  Recompute r{.kind = Kind::plan};
  for (const PlanRun& run : runs) {
    if (run.blocks > 0) append(r, run);
  }
  return r;
}

PieceSet Recompute::again_in(int64_t index) const {
  if (kind != Kind::plan) return {};
  for (int i = 0; i < run_count; ++i) {
    const PlanRun& run = runs[static_cast<std::size_t>(i)];
    if (run.blocks == 0 || index < run.blocks) return run.again;
    index -= run.blocks;
  }
  return {};
}

std::string Recompute::why_not_for(int64_t layers) const {
  if (kind == Kind::every && k < 1) return cat("every ", k, " blocks are to be recomputed; 1 or more are");
  if (kind != Kind::plan) return {};
  int64_t blocks = 0;
  for (int i = 0; i < run_count; ++i) {
    const int64_t n = runs[static_cast<std::size_t>(i)].blocks;
    if (n == 0 && blocks < layers) return {};
    blocks += n;
  }
  if (blocks == layers) return {};
  return cat("the recompute plan is for ", blocks, " blocks, and the model has ", layers);
}

std::string name_of(const Recompute& r) {
  switch (r.kind) {
    case Recompute::Kind::none:
      return "none";
    case Recompute::Kind::every:
      return r.k == 1 ? "block" : cat(kEvery, r.k);
    case Recompute::Kind::nested:
      return "nested";
    case Recompute::Kind::plan: {
      std::string text(kPlan);
      for (int i = 0; i < r.run_count; ++i) {
        const PlanRun& run = r.runs[static_cast<std::size_t>(i)];
        text += cat(i == 0 ? "" : ",", name_of(run.again), run.blocks > 0 ? cat("*", run.blocks) : "");
      }
      return text;
    }
    case Recompute::Kind::budget:
      return cat(kBudget, size_text(r.budget));
  }
  return {};
}

Recompute parse_recompute(std::string_view option, std::string_view text) {
  if (text == "none") return Recompute::none;
  if (text == "block") return Recompute::block;
  if (text == "nested") return Recompute::nested;
  if (text.starts_with(kEvery)) {
    return Recompute::every(read_count(option, text, text.substr(kEvery.size()), "every:k with k",
                                       "every:2 keeps the input of every second block"));
  }
  if (text.starts_with(kPlan)) return parse_plan(option, text);
  if (text.starts_with(kBudget)) return parse_budget(option, text);
  constexpr std::array<std::string_view, 6> kNames = {"none",   "block",       "every:k",
                                                      "nested", "plan:PIECES", "budget:SIZE"};
  const std::string_view head = text.substr(0, text.find(':'));
  std::string near = nearest_name(text, kNames);
  for (const std::string_view name : kNames) {
    const std::array<std::string_view, 1> one = {name.substr(0, name.find(':'))};
    if (near.empty() && !nearest_name(head, one).empty()) near = name;
  }
  throw Error(cat(option, " is '", text,
                  "'; expected one of: none, block, every:k, nested, plan:PIECES*BLOCKS,..., budget:SIZE"),
              near.empty() ? "" : cat("did you mean '", near, "'?"), ErrorKind::usage);
}

}  // namespace kiln
