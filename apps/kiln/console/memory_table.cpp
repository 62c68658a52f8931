#include "kiln/console/memory_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace kiln {
namespace {

// What a tag holds, in a word or two.
const char* meaning_of(Tag tag) {
  switch (tag) {
    case Tag::param:
      return "weights";
    case Tag::master:
      return "master weights";
    case Tag::grad:
      return "gradients";
    case Tag::optim:
      return "optimizer";
    case Tag::activation:
      return "activations";
    case Tag::workspace:
      return "workspace";
    case Tag::comm:
      return "communication";
    case Tag::data:
      return "batches";
  }
  return "";
}

constexpr const char* kPeak = "peak";  // tags peak at different moments: less than their sum

}  // namespace

std::string human_count(int64_t n) {
  const auto x = static_cast<double>(n);
  for (const auto& [unit, letter] : {std::pair{1e9, 'B'}, {1e6, 'M'}, {1e3, 'K'}}) {
    if (x >= unit) return fmt::format("{:#.4g} {}", x / unit, letter);
  }
  return fmt::format("{}", n);
}

std::string memory_table(const ParamGroups& params, bool tied, const MemoryStats& predicted) {
  using Row = std::pair<std::string, std::string>;
  const std::vector<Row> left = {{"embedding", human_count(params.embedding)},
                                 {"attention", human_count(params.attention)},
                                 {"mlp", human_count(params.mlp)},
                                 {"norms", human_count(params.norms)},
                                 {"head", tied ? "tied" : human_count(params.head)},
                                 {"total", human_count(params.total())}};
  std::vector<Row> right;
  for (int t = 0; t < kTagCount; ++t) {
    const Tag tag = static_cast<Tag>(t);
    if (predicted.peak[tag] != 0) right.emplace_back(meaning_of(tag), human({predicted.peak[tag]}));
  }
  right.emplace_back(kPeak, human({predicted.peak_total}));

  std::string table = fmt::format("{:<22}   {}\n", "parameters", "memory, predicted peak");
  const Row none;
  for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    const Row& a = i < left.size() ? left[i] : none;
    const Row& b = i < right.size() ? right[i] : none;
    std::string line = fmt::format("  {:<10}{:>10}     {:<14}{:>12}", a.first, a.second, b.first, b.second);
    line.resize(line.find_last_not_of(' ') + 1);
    table += line + "\n";
  }
  return table;
}

std::string memory_comparison(const MemoryStats& predicted, const MemoryStats& measured, bool whole_run) {
  std::string table = fmt::format("{:<16}{:>12}{:>12}\n", "memory, peak", "predicted", "measured");
  bool same = true, cut_short = false;
  auto row = [&](const char* name, std::size_t p, std::size_t m) {
    if (p == 0 && m == 0) return;
    same = same && p == m;
    table += fmt::format("  {:<14}{:>12}{:>12}", name, human({p}), human({m}));
    if (m > p) table += fmt::format("  {} bytes more", m - p);
    if (m < p && whole_run) table += fmt::format("  {} bytes less", p - m);
    cut_short = cut_short || (m < p && !whole_run);
    table += "\n";
  };
  for (int t = 0; t < kTagCount; ++t) {
    const Tag tag = static_cast<Tag>(t);
    row(meaning_of(tag), predicted.peak[tag], measured.peak[tag]);
  }
  row(kPeak, predicted.peak_total, measured.peak_total);
  if (same) table += "  the same to the byte\n";
  if (cut_short) table += "  measured: so far; the run was stopped before all of it was needed\n";
  return table;
}

}  // namespace kiln
