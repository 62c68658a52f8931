#include "kiln/memory_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "studies/format.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

std::string share(std::size_t part, std::size_t all) {
  return fmt::format("{:.1f} %", all == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(all));
}

template <class F>
void each_tag(F f) {
  for (int t = 0; t < kTagCount; ++t) f(static_cast<Tag>(t));
}

std::string row_title(const MemoryRow& r) {
  return fmt::format("{}, {}, {}, ctx {}", r.size.name, name_of(r.spec.mode), name_of(r.spec.precision),
                     r.spec.step.context);
}

std::string peak_table(const MemoryReport& report) {
  TextTable table = {{"size", "phase", "dtype", "ctx", "predicted MiB", "measured", "floor", "of floor",
                      "forward", "backward", "reserved"}};
  for (const MemoryRow& r : report.rows) {
    const auto phase = [&](std::initializer_list<Phase> wanted) {
      std::size_t most = 0;
      for (const PhasePeak& p : r.phases) {
        if (std::find(wanted.begin(), wanted.end(), p.phase) != wanted.end())
          most = std::max(most, p.peak.bytes);
      }
      return most == 0 ? std::string("-") : fine_mib(most);
    };
    table.push_back({std::string(r.size.name), std::string(name_of(r.spec.mode)),
                     std::string(name_of(r.spec.precision)), fmt::format("{}", r.spec.step.context),
                     fine_mib(r.predicted.peak_total),
                     r.measured ? fine_mib(r.measured->peak_total) : std::string("-"), fine_mib(r.floor),
                     fmt::format("{:.2f}x", static_cast<double>(r.predicted.peak_total) /
                                                static_cast<double>(std::max<std::size_t>(r.floor, 1))),
                     phase({Phase::forward}), phase({Phase::backward, Phase::recompute}),
                     fine_mib((r.measured ? *r.measured : r.predicted).peak_reserved)});
  }
  return aligned(table, 3);
}

std::string differences(const MemoryReport& report) {
  std::string text;
  std::vector<std::pair<std::string, int>> reasons;  // the same one for many rows, mostly
  bool same = true;
  for (const MemoryRow& r : report.rows) {
    same = same && r.measured && r.measured->peak_total == r.predicted.peak_total;
    if (!r.measured) {
      auto it = std::find_if(reasons.begin(), reasons.end(),
                             [&](const auto& p) { return p.first == r.not_measured; });
      if (it == reasons.end()) it = reasons.insert(reasons.end(), {r.not_measured, 0});
      ++it->second;
    } else if (r.measured->peak_total != r.predicted.peak_total) {
      text += fmt::format(
          "{}: measured differs from predicted by {} bytes\n", row_title(r),
          static_cast<int64_t>(r.measured->peak_total) - static_cast<int64_t>(r.predicted.peak_total));
    }
  }
  for (const auto& [why, rows] : reasons)
    text += fmt::format("predicted only, {} row{}: {}\n", rows, rows == 1 ? "" : "s", why);
  return same ? "measured and predicted are the same to the byte\n" : text;
}

std::string layers_words(const std::vector<std::string>& layers) {
  return layers.size() == 1 ? layers.front() : fmt::format("{} layers", layers.size());
}

std::string group_table(const char* what, const std::vector<MemoryGroup>& groups, const MemoryRow& r,
                        std::size_t count) {
  TextTable table = {{what, "at the peak MiB", "of it", "allocated", "times", "largest"}};
  for (std::size_t i = 0; i < std::min(count, groups.size()); ++i) {
    const MemoryGroup& g = groups[i];
    table.push_back({g.name, fine_mib(g.at_peak), share(g.at_peak, r.peak.bytes), fine_mib(g.allocated),
                     fmt::format("{}", g.count), fine_mib(g.largest)});
  }
  std::string text = aligned(table, 1);
  if (groups.size() > count) text += fmt::format("and {} more\n", groups.size() - count);
  return text;
}

std::string detail_text(const MemoryReport& report, const MemoryRow& r) {
  std::string text = fmt::format("\n{}: {} MiB at the peak, in {}\n", row_title(r), fine_mib(r.peak.bytes),
                                 name_of(r.peak_phase));
  TextTable tags = {{"tag", "at the peak MiB", "of it", "its own peak"}};
  each_tag([&](Tag t) {
    if (r.own_peak[t] != 0)
      tags.push_back({std::string(name_of(t)), fine_mib(r.peak.by_tag[t]),
                      share(r.peak.by_tag[t], r.peak.bytes), fine_mib(r.own_peak[t])});
  });
  text += aligned(tags, 1);
  TextTable large = {{"allocated by", "layer", "tag", "line", "MiB each", "times", "at the peak"}};
  constexpr std::size_t kLines = 12;
  for (std::size_t i = 0; i < std::min(kLines, r.largest.size()); ++i) {
    const MemoryRow::Large& l = r.largest[i];
    large.push_back({l.op, layers_words(l.layers), std::string(name_of(l.tag)), l.line, fine_mib(l.bytes),
                     fmt::format("{}", l.count), fmt::format("{}", l.live_at_peak)});
  }
  text +=
      fmt::format("\nthe largest {:g} % of all allocations\n{}", report.request.detail, aligned(large, 4));
  if (r.largest.size() > kLines) text += fmt::format("and {} more kinds\n", r.largest.size() - kLines);
  text += fmt::format("\n{}\n{}\n{}", group_table("by op", r.by_op, r, 10),
                      group_table("by line", r.by_line, r, 10), group_table("by layer", r.by_layer, r, 6));
  text += fmt::format("\none tensor of the residual stream: {} x {} x {} x {} B = {} MiB\n",
                      r.spec.step.batch, r.spec.step.context, r.spec.model.d_model,
                      size_of(policy_of(r.spec.precision).value), fine_mib(r.stream));
  if (r.scores != 0)
    text += fmt::format("matrices of {0} x {0} scores hold {1} of the peak\n", r.spec.step.context,
                        share(r.scores, r.peak.bytes));
  if (r.dropped != 0)
    text += fmt::format("{} older events were dropped: --events keeps more than {}\n", r.dropped,
                        report.request.most_events);
  return text;
}

// Rows that differ in nothing but their precision.
bool alike(const MemoryRow& a, const MemoryRow& b) {
  return a.size.name == b.size.name && a.spec.mode == b.spec.mode &&
         a.spec.step.context == b.spec.step.context;
}

struct Pair {
  const MemoryRow *a, *b;
};

std::vector<Pair> precision_pairs(const MemoryReport& report) {
  std::vector<Pair> pairs;
  for (const MemoryRow& a : report.rows) {
    if (a.spec.precision != report.request.precisions.front()) continue;
    for (const MemoryRow& b : report.rows) {
      if (b.spec.precision != a.spec.precision && alike(a, b)) pairs.push_back({&a, &b});
    }
  }
  return pairs;
}

PrecisionPolicy policy_for(const MemoryRow& r) {
  return policy_of(r.spec.precision, r.spec.step.micro_steps == 1);
}

std::string precision_text(const Pair& p) {
  const std::string a(name_of(p.a->spec.precision)), b(name_of(p.b->spec.precision));
  std::string text = fmt::format("\n{}, {}, ctx {}: {} against {}\n", p.a->size.name, name_of(p.a->spec.mode),
                                 p.a->spec.step.context, b, a);
  TextTable table = {{"tag, its peak MiB", "why", a, b, "change"}};
  const auto line = [&](std::string what, std::string why, std::size_t x, std::size_t y) {
    table.push_back({std::move(what), std::move(why), fine_mib(x), fine_mib(y),
                     fine_mib(static_cast<int64_t>(y) - static_cast<int64_t>(x))});
  };
  each_tag([&](Tag t) {
    const std::size_t x = p.a->predicted.peak[t], y = p.b->predicted.peak[t];
    if (x != 0 || y != 0)
      line(std::string(name_of(t)), reason_for(t, policy_for(*p.a), policy_for(*p.b)), x, y);
  });
  line("most at once", "", p.a->predicted.peak_total, p.b->predicted.peak_total);
  return text + aligned(table, 2);
}

ordered_json groups_json(const std::vector<MemoryGroup>& groups) {
  ordered_json j = ordered_json::array();
  for (const MemoryGroup& g : groups)
    j.push_back({{"name", g.name},
                 {"at_peak_bytes", g.at_peak},
                 {"allocated_bytes", g.allocated},
                 {"count", g.count},
                 {"largest_bytes", g.largest}});
  return j;
}

ordered_json row_json(const MemoryReport& report, const MemoryRow& r, bool whole) {
  const MemoryRequest& q = report.request;
  ordered_json row = {
      {"size", r.size.name},
      {"phase", name_of(r.spec.mode)},
      {"dtype", name_of(r.spec.precision)},
      {"ctx", r.spec.step.context},
      {"batch", r.spec.step.batch},
      {"micro_steps", r.spec.step.micro_steps},
      {"vocab", r.spec.model.vocab},
      {"preset", q.preset},
      {"variants", q.variants},
      {"recompute", name_of(r.spec.model.recompute)},
      {"device", q.device.str()},
      {"parameters", r.params},
      {"predicted_peak_bytes", r.predicted.peak_total},
      {"predicted_peak_by_tag", tags_json(r.predicted.peak)},
      {"predicted_reserved_bytes", r.predicted.peak_reserved},
      {"measured_peak_bytes", r.measured ? ordered_json(r.measured->peak_total) : ordered_json()},
      {"measured_peak_by_tag", r.measured ? tags_json(r.measured->peak) : ordered_json()},
      {"not_measured", r.not_measured},
      {"floor_bytes", r.floor},
      {"residual_stream_bytes", r.stream},
      {"score_bytes_at_peak", r.scores}};
  if (!whole) return row;
  ordered_json phases = ordered_json::array(), largest = ordered_json::array();
  for (const PhasePeak& p : r.phases)
    phases.push_back({{"phase", name_of(p.phase)},
                      {"peak_bytes", p.peak.bytes},
                      {"event", p.peak.event},
                      {"by_tag", tags_json(p.peak.by_tag)}});
  for (const MemoryRow::Large& l : r.largest)
    largest.push_back({{"bytes", l.bytes},
                       {"count", l.count},
                       {"at_peak", l.live_at_peak},
                       {"op", l.op},
                       {"layers", l.layers},
                       {"line", l.line},
                       {"function", l.function},
                       {"tag", name_of(l.tag)}});
  row["peak"] = {{"bytes", r.peak.bytes},
                 {"event", r.peak.event},
                 {"phase", name_of(r.peak_phase)},
                 {"by_tag", tags_json(r.peak.by_tag)}};
  row["phases"] = phases;
  row["largest"] = largest;
  row["by_op"] = groups_json(r.by_op);
  row["by_line"] = groups_json(r.by_line);
  row["by_layer"] = groups_json(r.by_layer);
  row["events"] = r.events;
  row["dropped_events"] = r.dropped;
  row["files"] = r.files;
  return row;
}

}  // namespace

std::string reason_for(Tag tag, const PrecisionPolicy& a, const PrecisionPolicy& b) {
  const auto change = [](const char* what, std::string x, std::string y) {
    return x == y ? fmt::format("{} stay {}", what, x) : fmt::format("{} {} instead of {}", what, y, x);
  };
  const auto dtype = [](DType t) { return std::string(name_of(t)); };
  switch (tag) {
    case Tag::param:
      if (a.casts_at_use() != b.casts_at_use())
        return fmt::format("{} copies of weights in use; the weights themselves are master",
                           name_of((b.casts_at_use() ? b : a).compute));
      return change("weights", dtype(a.value), dtype(b.value));
    case Tag::master:
      if (a.split != b.split) return "16 low bits of each weight, exact fp32 with its bf16 half";
      return "weights that are cast at use are here instead of param";
    case Tag::grad:
      return change("gradients", dtype(a.grad), dtype(b.grad));
    case Tag::optim:
      return change("Adam's moments", dtype(a.state), dtype(b.state));
    case Tag::activation:
      if (b.casts_at_use() && !a.casts_at_use())
        return fmt::format("{} inside the halves of a block, {} between them, and casts", name_of(b.compute),
                           name_of(b.value));
      return change("activations", dtype(a.compute), dtype(b.compute)) + "; statistics as before";
    case Tag::workspace:
      return "scratch of other kernels; sums stay fp32";
    case Tag::comm:
      return "buffers of collectives";
    case Tag::data:
      return "token ids have no precision";
  }
  return {};
}

std::string memory_text(const MemoryReport& report) {
  const MemoryRequest& q = report.request;
  std::string text =
      fmt::format("{}, batch {}, preset {}{}{}, recompute {}; peaks in MiB\n\n", q.device.str(), q.batch,
                  q.preset, q.variants.empty() ? "" : ",", q.variants, name_of(q.recompute));
  text += peak_table(report) + differences(report);
  text +=
      "floor: what the precision keeps of every parameter for this phase; the rest is activations and "
      "scratch\n";
  for (const Pair& p : precision_pairs(report)) text += precision_text(p);
  text += detail_text(report, report.rows.back());
  std::string files;
  for (const MemoryRow& r : report.rows) {
    for (const std::string& f : r.files) files += fmt::format("  {}\n", f);
  }
  if (!files.empty()) text += fmt::format("\nwritten:\n{}", files);
  return text;
}

std::string memory_json(const MemoryReport& report) {
  ordered_json rows = ordered_json::array(), pairs = ordered_json::array();
  for (const MemoryRow& r : report.rows) rows.push_back(row_json(report, r, true));
  for (const Pair& p : precision_pairs(report)) {
    ordered_json tags = ordered_json::array();
    each_tag([&](Tag t) {
      const std::size_t x = p.a->predicted.peak[t], y = p.b->predicted.peak[t];
      if (x == 0 && y == 0) return;
      tags.push_back({{"tag", name_of(t)},
                      {"from_bytes", x},
                      {"to_bytes", y},
                      {"reason", reason_for(t, policy_for(*p.a), policy_for(*p.b))}});
    });
    pairs.push_back({{"size", p.a->size.name},
                     {"phase", name_of(p.a->spec.mode)},
                     {"ctx", p.a->spec.step.context},
                     {"from", name_of(p.a->spec.precision)},
                     {"to", name_of(p.b->spec.precision)},
                     {"tags", tags}});
  }
  return dump({{"command", "memory"},
               {"device", report.request.device.str()},
               {"detail", report.request.detail},
               {"rows", rows},
               {"precision", pairs}},
              2) +
         "\n";
}

std::vector<std::string> memory_result_lines(const MemoryReport& report) {
  std::vector<std::string> lines;
  lines.reserve(report.rows.size());
  for (const MemoryRow& r : report.rows)
    lines.push_back(result_line("memory", row_json(report, r, false), {}, ordered_json::object()));
  return lines;
}

}  // namespace kiln::cli
