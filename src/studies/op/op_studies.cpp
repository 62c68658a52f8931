#include "studies/op/op_studies.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/result_table.h"

namespace kiln {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

bool timed(const json& row) {
  return word_at(row, "gate") == "passed" && number_at(row, "p50_ms") && row.contains("shape");
}

std::vector<double> samples_of(const json& row) {
  std::vector<double> samples;
  if (const auto found = row.find("raw_samples"); found != row.end() && found->is_array()) {
    for (const json& s : *found) samples.push_back(s.get<double>());
  }
  return samples;
}

bool unfused(const std::string& variant) { return variant == "naive" || variant == "composed"; }

// Groups in the order in which they first appear.
template <class Key>
std::vector<std::vector<const json*>> grouped(std::span<const json> rows, Key key) {
  std::map<std::string, std::size_t> where;
  std::vector<std::vector<const json*>> groups;
  for (const json& row : rows) {
    if (!timed(row)) continue;
    const auto [at, fresh] = where.emplace(key(row), groups.size());
    if (fresh) groups.emplace_back();
    groups[at->second].push_back(&row);
  }
  return groups;
}

Ladder ladder_of(const std::vector<const json*>& rows) {
  Ladder ladder{
      word_at(*rows.front(), "op"), word_at(*rows.front(), "shape"), word_at(*rows.front(), "dtype"), {}, {}};
  std::vector<std::string> variants;
  auto note = [](std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const json* row : rows) {
    note(ladder.passes, word_at(*row, "pass"));
    note(variants, word_at(*row, "variant"));
  }
  auto row_of = [&](const std::string& variant, const std::string& pass) -> const json* {
    const json* found = nullptr;  // of a cell measured twice, the later one
    for (const json* row : rows) {
      if (word_at(*row, "variant") == variant && word_at(*row, "pass") == pass) found = row;
    }
    return found;
  };
  for (const std::string& variant : variants) {
    Rung rung;
    rung.variant = variant;
    for (const std::string& pass : ladder.passes) {
      const json* row = row_of(variant, pass);
      if (row == nullptr) break;
      rung.pass_ms.push_back(*number_at(*row, "p50_ms"));
      rung.ms += rung.pass_ms.back();
      rung.bytes += number_at(*row, "bytes").value_or(0);
      rung.flops += number_at(*row, "flops").value_or(0);
      rung.predicted_ms += number_at(*row, "predicted_ms").value_or(0);
    }
    if (rung.pass_ms.size() == ladder.passes.size()) ladder.rungs.push_back(std::move(rung));
  }
  std::stable_sort(ladder.rungs.begin(), ladder.rungs.end(),
                   [](const Rung& a, const Rung& b) { return a.ms > b.ms; });
  // Of all passes together: a variant may do in one pass what another leaves to the next.
  double floor = 0;
  for (const Rung& rung : ladder.rungs)
    floor = floor == 0 ? rung.predicted_ms : std::min(floor, rung.predicted_ms);
  for (std::size_t i = 0; i < ladder.rungs.size(); ++i) {
    Rung& rung = ladder.rungs[i];
    rung.floor_ms = floor;
    rung.over_first = ladder.rungs.front().ms / rung.ms;
    if (i == 0) continue;
    const Rung& below = ladder.rungs[i - 1];
    rung.over_last = below.ms / rung.ms;
    rung.won_every_pass = true;
    for (std::size_t p = 0; p < ladder.passes.size(); ++p) {
      const Comparison c = compare(samples_of(*row_of(below.variant, ladder.passes[p])),
                                   samples_of(*row_of(rung.variant, ladder.passes[p])));
      if (p == 0) rung.verdict = c.verdict;
      rung.won_every_pass = rung.won_every_pass && c.verdict == Comparison::Verdict::faster;
    }
  }
  return ladder;
}

std::string held_sizes(const json& shape, const std::string& over) {
  std::string text;
  for (const auto& [key, value] : shape.items()) {
    if (key != over) text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value.dump());
  }
  return text;
}

// "1.50x", or "1.20x to 3.10x".
std::string predicted_range(const std::vector<double>& ratios) {
  if (ratios.empty()) return "-";
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  if (*least <= 0) return "-";
  const std::string low = times(*least), high = times(*most);
  return low == high ? low : fmt::format("{} to {}", low, high);
}

}  // namespace

std::vector<Ladder> op_ladders(std::span<const json> rows) {
  std::vector<Ladder> ladders;
  for (const auto& group : grouped(rows, [](const json& r) {
         return fmt::format("{}\n{}\n{}", word_at(r, "op"), word_at(r, "shape"), word_at(r, "dtype"));
       })) {
    Ladder ladder = ladder_of(group);
    if (ladder.rungs.size() > 1) ladders.push_back(std::move(ladder));
  }
  return ladders;
}

TextTable ladder_table(const Ladder& ladder) {
  std::vector<std::string> heading = {"variant"};
  for (const std::string& pass : ladder.passes) heading.push_back(fmt::format("{} ms", pass));
  for (const char* name :
       {"all ms", "predicted", "floor", "of roofline", "MB moved", "saved", "over last", "over first"})
    heading.emplace_back(name);
  TextTable table = {heading};
  double most = 0;
  for (const Rung& r : ladder.rungs) most = std::max(most, r.bytes);
  for (std::size_t i = 0; i < ladder.rungs.size(); ++i) {
    const Rung& r = ladder.rungs[i];
    std::vector<std::string> line = {r.variant};
    for (double ms : r.pass_ms) line.push_back(figure(ms));
    line.push_back(figure(r.ms));
    line.push_back(figure(r.predicted_ms));
    line.push_back(figure(r.floor_ms));
    line.push_back(fmt::format("{:.0f} %", 100 * r.floor_ms / r.ms));
    line.push_back(figure(r.bytes / 1e6));
    line.push_back(most > 0 ? fmt::format("{:.0f} %", 100 * (1 - r.bytes / most)) : "-");
    line.push_back(i == 0 ? "-" : times(r.over_last) + (r.won_every_pass ? "" : " (not in every pass)"));
    line.push_back(times(r.over_first));
    table.push_back(std::move(line));
  }
  return table;
}

ordered_json ladders_json(std::span<const Ladder> ladders) {
  ordered_json all = ordered_json::array();
  for (const Ladder& l : ladders) {
    ordered_json rungs = ordered_json::array();
    for (const Rung& r : l.rungs) {
      ordered_json passes = ordered_json::object();
      for (std::size_t i = 0; i < l.passes.size(); ++i) passes[l.passes[i] + "_ms"] = r.pass_ms[i];
      rungs.push_back({{"variant", r.variant},
                       {"passes", passes},
                       {"ms", r.ms},
                       {"predicted_ms", r.predicted_ms},
                       {"floor_ms", r.floor_ms},
                       {"of_roofline", r.ms > 0 ? r.floor_ms / r.ms : 0},
                       {"bytes", r.bytes},
                       {"flops", r.flops},
                       {"over_last", r.over_last},
                       {"over_first", r.over_first},
                       {"faster_in_every_pass", r.won_every_pass}});
    }
    all.push_back({{"op", l.op}, {"shape", l.shape}, {"dtype", l.dtype}, {"rungs", rungs}});
  }
  return all;
}

std::vector<OpCrossover> op_crossovers(std::span<const json> rows) {
  std::vector<OpCrossover> all;
  std::vector<std::string> keys;
  for (const json& row : rows) {
    if (!timed(row)) continue;
    for (const auto& [key, value] : row.at("shape").items()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  for (const std::string& over : keys) {
    for (const auto& group : grouped(rows, [&](const json& r) {
           return fmt::format("{}\n{}\n{}\n{}", word_at(r, "op"), word_at(r, "pass"), word_at(r, "dtype"),
                              held_sizes(r.at("shape"), over));
         })) {
      struct Times {
        double ms = 0, predicted = 0;
      };
      std::map<double, Times> best;  // of naive and composed, by size
      std::map<std::string, std::map<double, Times>> variants;
      for (const json* row : group) {
        const auto size = number_at(row->at("shape"), over.c_str());
        if (!size) continue;
        const Times times{*number_at(*row, "p50_ms"), number_at(*row, "predicted_ms").value_or(0)};
        const std::string variant = word_at(*row, "variant");
        if (!unfused(variant)) {
          variants[variant][*size] = times;
        } else if (!best.contains(*size) || times.ms < best[*size].ms) {
          best[*size] = times;
        }
      }
      for (const auto& [variant, by_size] : variants) {
        OpCrossover c{word_at(*group.front(), "op"),
                      variant,
                      word_at(*group.front(), "pass"),
                      word_at(*group.front(), "dtype"),
                      over,
                      held_sizes(group.front()->at("shape"), over),
                      {},
                      {}};
        for (const auto& [size, times] : by_size) {
          if (!best.contains(size)) continue;
          c.duels.push_back({size, best[size].ms, times.ms});
          c.predicted.push_back(times.predicted > 0 ? best[size].predicted / times.predicted : 0);
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
      {"variant", "pass", "dtype", "over", "held", "against the unfused", "least", "most", "predicted"}};
  for (const OpCrossover& c : all) {
    double least = 0, most = 0;
    for (const Duel& d : c.duels) {
      const double ratio = d.baseline / d.judged;
      least = least == 0 ? ratio : std::min(least, ratio);
      most = std::max(most, ratio);
    }
    table.push_back({c.variant, c.pass, c.dtype, c.over, c.held, str(c.found, c.over), times(least),
                     times(most), predicted_range(c.predicted)});
  }
  return table;
}

ordered_json crossovers_json(std::span<const OpCrossover> all) {
  ordered_json list = ordered_json::array();
  for (const OpCrossover& c : all) {
    ordered_json points = ordered_json::array();
    for (std::size_t i = 0; i < c.duels.size(); ++i) {
      const Duel& d = c.duels[i];
      points.push_back({{"size", d.size},
                        {"unfused_ms", d.baseline},
                        {"ms", d.judged},
                        {"speedup", d.baseline / d.judged},
                        {"predicted_speedup", c.predicted[i]}});
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
                    {"from_size", from ? ordered_json(c.found.size) : ordered_json(nullptr)},
                    {"points", points}});
  }
  return list;
}

}  // namespace kiln
