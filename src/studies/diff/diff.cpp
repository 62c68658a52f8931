#include "studies/diff/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "rows/row_status.h"
#include "rows/row_values.h"

namespace kiln {
namespace {

constexpr const char* kWork = "work";
constexpr const char* kUnattributed = "no causes stored";
constexpr const char* kWholeStep = "all ops";
constexpr const char* kNotAtOnce = "not at the same time";

// What may set two rows apart, as `kiln compare` takes it.
constexpr std::array kDecides = {std::pair{"size", "size"},
                                 std::pair{"mode", "mode"},
                                 std::pair{"dtype", "precision"},
                                 std::pair{"batch", "batch"},
                                 std::pair{"ctx", "ctx"},
                                 std::pair{"vocab", "vocab"},
                                 std::pair{"micro_steps", "grad-accum"},
                                 std::pair{"clip", "clip"},
                                 std::pair{"recompute", "recompute"},
                                 std::pair{"preset", "preset"},
                                 std::pair{"variants", "variant"},
                                 std::pair{"graph", "graph"},
                                 std::pair{"strategy", "strategy"},
                                 std::pair{"ranks", "ranks"},
                                 std::pair{"device", "device"},
                                 std::pair{"build_id", "build"}};

void check(const Json& row) {
  const std::string command = text_at(row, "command");
  if (command != "compare" && command != "measure")
    throw Error(fmt::format("a row of '{}' cannot be compared op by op", command),
                "take rows of kiln compare or kiln measure", ErrorKind::usage);
  if (!counts(row) || !number_at(row, "p50_ms"))
    throw Error(fmt::format("the row of {} has status {}, gate {}: there is no time to compare",
                            text_at(row, "size"), name_of(status_of(row)), name_of(gate_of(row))),
                {}, ErrorKind::usage);
}

std::string differs(const Json& row, const Json& other) {
  std::string text;
  for (const auto& [key, name] : kDecides) {
    const std::string own = text_at(row, key);
    if (own == text_at(other, key)) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, own.empty() ? "none" : own);
  }
  return text;
}

// One row's calls of an op in one pass.
struct Part {
  std::string op, pass, variant;
  double ms = 0;
  std::vector<double> samples;
  std::vector<CauseChange> causes;
};

void add(std::vector<CauseChange>& causes, const std::string& name, double ms) {
  const auto found =
      std::find_if(causes.begin(), causes.end(), [&](const CauseChange& c) { return c.name == name; });
  if (found == causes.end())
    causes.push_back({name, ms});
  else
    found->ms += ms;
}

void add_causes(std::vector<CauseChange>& causes, const Json& json, double ms) {
  const auto roofline = number_at(json, "roofline_ms");
  const Json* stored = json.find("causes");
  if (!roofline || stored == nullptr) return add(causes, kUnattributed, ms);
  add(causes, kWork, *roofline);
  for (const Json& c : *stored) add(causes, text_at(c, "name"), number_at(c, "ms").value_or(0));
}

void add_samples(std::vector<double>& sum, const std::vector<double>& more) {
  if (sum.empty()) {
    sum = more;
    return;
  }
  for (std::size_t i = 0; i < sum.size() && i < more.size(); ++i) sum[i] += more[i];
}

// Variants of one op and pass together, as the other row may have taken another.
std::vector<Part> parts_of(const Json& row) {
  std::vector<Part> parts;
  const Json* by_op = row.find("by_op");
  bool timed = by_op != nullptr && !by_op->empty();
  if (timed)
    for (const Json& json : *by_op) timed = timed && number_at(json, "measured_ms").has_value();
  if (!timed) {  // a GPU's row of `measure` knows no times of ops
    Part whole{kWholeStep, "", "", *number_at(row, "p50_ms"), samples_of(row), {}};
    add(whole.causes, kUnattributed, whole.ms);
    return {whole};
  }
  for (const Json& json : *by_op) {
    const std::string op = text_at(json, "op"), pass = text_at(json, "pass"),
                      variant = text_at(json, "variant");
    auto part =
        std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.op == op && p.pass == pass; });
    const std::vector<double> samples = samples_of(json, "samples_ms");
    if (part == parts.end()) {
      part = parts.insert(parts.end(), Part{op, pass, variant, 0, samples, {}});
    } else {
      part->variant += "+" + variant;
      add_samples(part->samples, samples);
    }
    const double ms = *number_at(json, "measured_ms");
    part->ms += ms;
    add_causes(part->causes, json, ms);
  }
  // Of `measure`: medians of parts do not quite add up to the median step.
  double rest = *number_at(row, "p50_ms");
  for (const Part& p : parts) rest -= p.ms;
  if (std::abs(rest) > 1e-9) {
    parts.back().ms += rest;
    add(parts.back().causes, kUnattributed, rest);
  }
  return parts;
}

void sort_causes(std::vector<CauseChange>& causes) {
  std::erase_if(causes, [](const CauseChange& c) { return c.ms == 0; });
  std::stable_sort(causes.begin(), causes.end(), [](const CauseChange& a, const CauseChange& b) {
    return std::abs(a.ms) > std::abs(b.ms);
  });
}

Comparison compared(const std::vector<double>& a, const std::vector<double>& b, bool by_turns) {
  // An op that only one row has is a difference, however much its samples spread.
  if (a.empty() != b.empty())
    return {.significance = a.empty() ? Comparison::Significance::slower : Comparison::Significance::faster,
            .p = 0};
  return by_turns ? compare_turns(a, b) : compare(a, b);
}

OpChange change_of(const Part* a, const Part* b, bool by_turns) {
  const Part& either = a != nullptr ? *a : *b;
  OpChange change{either.op, either.pass, {}, {}, {}, {}, {}, {}};
  if (a != nullptr) {
    change.variant_a = a->variant;
    change.a = a->ms;
    for (const CauseChange& c : a->causes) add(change.causes, c.name, -c.ms);
  }
  if (b != nullptr) {
    change.variant_b = b->variant;
    change.b = b->ms;
    for (const CauseChange& c : b->causes) add(change.causes, c.name, c.ms);
  }
  change.significance = compared(a != nullptr ? a->samples : std::vector<double>(),
                                 b != nullptr ? b->samples : std::vector<double>(), by_turns);
  sort_causes(change.causes);
  return change;
}

std::vector<OpChange> op_changes(std::vector<Part> a, std::vector<Part> b, bool by_turns) {
  // Where one row knows the whole step alone, there is nothing else to compare in the other.
  const auto whole = [](const std::vector<Part>& parts) { return parts.front().op == kWholeStep; };
  const auto joined = [](const std::vector<Part>& parts) {
    Part all{kWholeStep, "", "", 0, {}, {}};
    for (const Part& p : parts) {
      all.ms += p.ms;
      add_samples(all.samples, p.samples);
    }
    add(all.causes, kUnattributed, all.ms);
    return std::vector<Part>{all};
  };
  if (whole(a) && !whole(b)) b = joined(b);
  if (whole(b) && !whole(a)) a = joined(a);
  std::vector<OpChange> changes;
  const auto find = [](const std::vector<Part>& parts, const Part& like) {
    const auto found = std::find_if(parts.begin(), parts.end(),
                                    [&](const Part& p) { return p.op == like.op && p.pass == like.pass; });
    return found == parts.end() ? nullptr : &*found;
  };
  for (const Part& p : a) changes.push_back(change_of(&p, find(b, p), by_turns));
  for (const Part& p : b) {
    if (find(a, p) == nullptr) changes.push_back(change_of(nullptr, &p, by_turns));
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const OpChange& x, const OpChange& y) { return std::abs(x.ms()) > std::abs(y.ms()); });
  return changes;
}

double bytes_at(const Json* tags, std::string_view tag) {
  return tags == nullptr ? 0 : number_at(*tags, tag).value_or(0);
}

std::vector<TagChange> tag_changes(const Json& a, const Json& b, const StepDiff& diff) {
  std::vector<TagChange> changes;
  const Json *of_a = a.find("peak_by_tag"), *of_b = b.find("peak_by_tag");
  TagChange rest{kNotAtOnce, diff.peak_a, diff.peak_b};
  for (const Json* tags : {of_a, of_b}) {
    if (tags == nullptr) continue;
    for (const auto& [tag, bytes] : tags->items()) {
      const std::string& name = tag;
      if (std::any_of(changes.begin(), changes.end(), [&](const TagChange& c) { return c.tag == name; }))
        continue;
      changes.push_back({name, bytes_at(of_a, name), bytes_at(of_b, name)});
      rest.a -= changes.back().a;
      rest.b -= changes.back().b;
    }
  }
  if (!changes.empty()) changes.push_back(rest);
  return changes;
}

}  // namespace

StepDiff diff_rows(const Json& a, const Json& b, bool by_turns) {
  check(a);
  check(b);
  StepDiff diff;
  diff.differs_a = differs(a, b);
  diff.differs_b = differs(b, a);
  diff.significance = compared(samples_of(a), samples_of(b), by_turns);
  diff.ops = op_changes(parts_of(a), parts_of(b), by_turns);
  for (const OpChange& op : diff.ops) {
    diff.a += op.a.value_or(0);
    diff.b += op.b.value_or(0);
    for (const CauseChange& c : op.causes) add(diff.causes, c.name, c.ms);
  }
  sort_causes(diff.causes);
  diff.peak_a = number_at(a, "peak_bytes").value_or(0);
  diff.peak_b = number_at(b, "peak_bytes").value_or(0);
  diff.tags = tag_changes(a, b, diff);
  return diff;
}

}  // namespace kiln
