#include "studies/op/op_studies.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "rows/row_status.h"
#include "rows/row_values.h"
#include "studies/roofline.h"

namespace kiln {
namespace {

bool timed(const Json& row) { return counts(row) && number_at(row, "p50_ms") && row.contains("shape"); }

bool unfused(const std::string& variant) { return variant == "naive" || variant == "composed"; }

// Groups in the order in which they first appear.
template <class Key>
std::vector<std::vector<const Json*>> grouped(std::span<const Json> rows, Key key) {
  std::map<std::string, std::size_t> where;
  std::vector<std::vector<const Json*>> groups;
  for (const Json& row : rows) {
    if (!timed(row)) continue;
    const auto [at, fresh] = where.emplace(key(row), groups.size());
    if (fresh) groups.emplace_back();
    groups[at->second].push_back(&row);
  }
  return groups;
}

Ladder ladder_of(const std::vector<const Json*>& rows) {
  Ladder ladder{
      text_at(*rows.front(), "op"), text_at(*rows.front(), "shape"), text_at(*rows.front(), "dtype"), {}, {}};
  std::vector<std::string> variants;
  auto note = [](std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const Json* row : rows) {
    note(ladder.passes, text_at(*row, "pass"));
    note(variants, text_at(*row, "variant"));
  }
  auto row_of = [&](const std::string& variant, const std::string& pass) -> const Json* {
    const Json* found = nullptr;  // of a cell measured twice, the later one
    for (const Json* row : rows) {
      if (text_at(*row, "variant") == variant && text_at(*row, "pass") == pass) found = row;
    }
    return found;
  };
  for (const std::string& variant : variants) {
    LadderStep step;
    step.variant = variant;
    for (const std::string& pass : ladder.passes) {
      const Json* row = row_of(variant, pass);
      if (row == nullptr) break;
      step.pass_ms.push_back(*number_at(*row, "p50_ms"));
      step.ms += step.pass_ms.back();
      step.bytes += number_at(*row, "bytes").value_or(0);
      step.flops += number_at(*row, "flops").value_or(0);
      step.own_roofline_ms += own_roofline_of(*row).value_or(0);
      if (step.below_roofline.empty()) step.below_roofline = text_at(*row, "below_roofline");
    }
    if (step.pass_ms.size() == ladder.passes.size()) ladder.steps.push_back(std::move(step));
  }
  std::stable_sort(ladder.steps.begin(), ladder.steps.end(),
                   [](const LadderStep& a, const LadderStep& b) { return a.ms > b.ms; });
  // Over all passes: a variant may do in one pass what another leaves to the next.
  double least = 0;
  for (const LadderStep& step : ladder.steps)
    least = least == 0 ? step.own_roofline_ms : std::min(least, step.own_roofline_ms);
  for (std::size_t i = 0; i < ladder.steps.size(); ++i) {
    LadderStep& step = ladder.steps[i];
    step.roofline_ms = least;
    step.over_first = ladder.steps.front().ms / step.ms;
    if (i == 0) continue;
    const LadderStep& below = ladder.steps[i - 1];
    step.over_last = below.ms / step.ms;
    step.won_every_pass = true;
    for (std::size_t p = 0; p < ladder.passes.size(); ++p) {
      const Comparison c = compare(samples_of(*row_of(below.variant, ladder.passes[p])),
                                   samples_of(*row_of(step.variant, ladder.passes[p])));
      if (p == 0) step.significance = c.significance;
      step.won_every_pass = step.won_every_pass && c.significance == Comparison::Significance::faster;
    }
  }
  return ladder;
}

std::string held_sizes(const Json& shape, const std::string& over) {
  std::string text;
  for (const auto& [key, value] : shape.items()) {
    if (key != over) text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value.dump());
  }
  return text;
}

// "1.50x", or "1.20x to 3.10x".
std::string range_of(const std::vector<double>& ratios) {
  if (ratios.empty()) return "-";
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  if (*least <= 0) return "-";
  const std::string low = times(*least), high = times(*most);
  return low == high ? low : fmt::format("{} to {}", low, high);
}

}  // namespace

std::vector<Ladder> op_ladders(std::span<const Json> rows) {
  std::vector<Ladder> ladders;
  for (const auto& group : grouped(rows, [](const Json& r) {
         return fmt::format("{}\n{}\n{}", text_at(r, "op"), text_at(r, "shape"), text_at(r, "dtype"));
       })) {
    Ladder ladder = ladder_of(group);
    if (ladder.steps.size() > 1) ladders.push_back(std::move(ladder));
  }
  return ladders;
}

TextTable ladder_table(const Ladder& ladder) {
  std::vector<std::string> heading = {"variant"};
  for (const std::string& pass : ladder.passes) heading.push_back(fmt::format("{} ms", pass));
  for (const char* name :
       {"all ms", "own roofline", "roofline", "of roofline", "MB moved", "saved", "over last", "over first"})
    heading.emplace_back(name);
  TextTable table = {heading};
  double most = 0;
  for (const LadderStep& r : ladder.steps) most = std::max(most, r.bytes);
  for (std::size_t i = 0; i < ladder.steps.size(); ++i) {
    const LadderStep& r = ladder.steps[i];
    std::vector<std::string> line = {r.variant};
    for (double ms : r.pass_ms) line.push_back(figure(ms));
    line.push_back(figure(r.ms));
    line.push_back(figure(r.own_roofline_ms));
    line.push_back(figure(r.roofline_ms));
    const std::string why = r.below_roofline.empty() ? "unexplained" : r.below_roofline;
    line.push_back(of_roofline_text(r.roofline_ms / r.ms, r.ms < r.roofline_ms ? why : ""));
    line.push_back(figure(r.bytes / 1e6));
    line.push_back(most > 0 ? fmt::format("{:.0f} %", 100 * (1 - r.bytes / most)) : "-");
    line.push_back(i == 0 ? "-" : times(r.over_last) + (r.won_every_pass ? "" : " (not in every pass)"));
    line.push_back(times(r.over_first));
    table.push_back(std::move(line));
  }
  return table;
}

Json ladders_json(std::span<const Ladder> ladders) {
  Json all = Json::array();
  for (const Ladder& l : ladders) {
    Json steps = Json::array();
    for (const LadderStep& r : l.steps) {
      Json passes = Json::object();
      for (std::size_t i = 0; i < l.passes.size(); ++i) passes[l.passes[i] + "_ms"] = r.pass_ms[i];
      steps.push_back({{"variant", r.variant},
                       {"passes", passes},
                       {"ms", r.ms},
                       {"own_roofline_ms", r.own_roofline_ms},
                       {"roofline_ms", r.roofline_ms},
                       {"of_roofline", r.ms > 0 ? r.roofline_ms / r.ms : 0},
                       {"bytes", r.bytes},
                       {"flops", r.flops},
                       {"over_last", r.over_last},
                       {"over_first", r.over_first},
                       {"faster_in_every_pass", r.won_every_pass}});
    }
    all.push_back({{"op", l.op}, {"shape", l.shape}, {"dtype", l.dtype}, {"rungs", steps}});
  }
  return all;
}

std::vector<OpCrossover> op_crossovers(std::span<const Json> rows) {
  std::vector<OpCrossover> all;
  std::vector<std::string> keys;
  for (const Json& row : rows) {
    if (!timed(row)) continue;
    for (const auto& [key, value] : row.at("shape").items()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  for (const std::string& over : keys) {
    for (const auto& group : grouped(rows, [&](const Json& r) {
           return fmt::format("{}\n{}\n{}\n{}", text_at(r, "op"), text_at(r, "pass"), text_at(r, "dtype"),
                              held_sizes(r.at("shape"), over));
         })) {
      struct Times {
        double ms = 0, roofline = 0;
      };
      std::map<double, Times> best;  // of naive and composed, by size
      std::map<std::string, std::map<double, Times>> variants;
      for (const Json* row : group) {
        const auto size = number_at(row->at("shape"), over.c_str());
        if (!size) continue;
        const Times times{*number_at(*row, "p50_ms"), own_roofline_of(*row).value_or(0)};
        const std::string variant = text_at(*row, "variant");
        if (!unfused(variant)) {
          variants[variant][*size] = times;
        } else if (!best.contains(*size) || times.ms < best[*size].ms) {
          best[*size] = times;
        }
      }
      for (const auto& [variant, by_size] : variants) {
        OpCrossover c{text_at(*group.front(), "op"),
                      variant,
                      text_at(*group.front(), "pass"),
                      text_at(*group.front(), "dtype"),
                      over,
                      held_sizes(group.front()->at("shape"), over),
                      {},
                      {}};
        for (const auto& [size, times] : by_size) {
          if (!best.contains(size)) continue;
          c.duels.push_back({size, best[size].ms, times.ms});
          c.rooflines.push_back(times.roofline > 0 ? best[size].roofline / times.roofline : 0);
        }
        if (c.duels.size() < 2) continue;
        c.found = crossover(c.duels);
        all.push_back(std::move(c));
      }
    }
  }
  return all;
}

TextTable crossover_table(std::span<const OpCrossover> all) {
  TextTable table = {
      {"variant", "pass", "dtype", "over", "held", "against the unfused", "least", "most", "by roofline"}};
  for (const OpCrossover& c : all) {
    double least = 0, most = 0;
    for (const Duel& d : c.duels) {
      const double ratio = d.baseline / d.judged;
      least = least == 0 ? ratio : std::min(least, ratio);
      most = std::max(most, ratio);
    }
    table.push_back({c.variant, c.pass, c.dtype, c.over, c.held, str(c.found, c.over), times(least),
                     times(most), range_of(c.rooflines)});
  }
  return table;
}

Json crossovers_json(std::span<const OpCrossover> all) {
  Json list = Json::array();
  for (const OpCrossover& c : all) {
    Json points = Json::array();
    for (std::size_t i = 0; i < c.duels.size(); ++i) {
      const Duel& d = c.duels[i];
      points.push_back({{"size", d.size},
                        {"unfused_ms", d.baseline},
                        {"ms", d.judged},
                        {"speedup", d.baseline / d.judged},
                        {"own_roofline_speedup", c.rooflines[i]}});
    }
    const bool from = c.found.kind == Crossover::Kind::from;
    list.push_back({{"op", c.op},
                    {"variant", c.variant},
                    {"pass", c.pass},
                    {"dtype", c.dtype},
                    {"over", c.over},
                    {"held", c.held},
                    {"pays", from                                      ? "from"
                             : c.found.kind == Crossover::Kind::always ? "always"
                                                                       : "never"},
                    {"from_size", from ? Json(c.found.size) : Json(nullptr)},
                    {"points", points}});
  }
  return list;
}

}  // namespace kiln
