#include "studies/step/split_render.h"
#include "perf/trace/kernel_name.h"
#include "studies/format.h"
#include "studies/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"

namespace kiln {
namespace {

double step_ms(const StepRow& r) { return 1e3 * r.timing.p50; }
double gaps_ms(const StepRow& r) { return step_ms(r) - r.split->ops_ms(); }

// One line of the table, whatever its time is made of; the roofline is that of its own ops.
struct Part {
  std::string_view name;
  std::string count;
  double ms, roofline_ms, cached_ms;
  Cost cost;
};

// Where bytes that fit into the cache cost nothing: of the ops for which `counts` says yes.
template <class Counts>
double cached_ms(const StepRow& r, std::span<const TimedOp> ops, Counts counts) {
  double sum = 0;
  for (const TimedOp& op : ops) sum += counts(op) ? roofline_ms(op.cost, r.best, r.cache_bytes) : 0;
  return sum;
}

class SplitTable {
 public:
  SplitTable(const StepRow& row, const char* count) : row_(row) {
    table_.push_back({"part", count, "ms", "of step", "own roofline ms", "of it", "GB/s", "TFLOP/s"});
  }

  void add(const Part& p) {
    const bool known = p.roofline_ms > 0, both = p.ms > 0 && known;
    table_.push_back({std::string(p.name), p.count, fmt::format("{:.3f}", p.ms), share(p.ms),
                      known ? fmt::format("{:.3f}", p.roofline_ms) : "-",
                      both ? share_of({p.ms, p.roofline_ms, p.roofline_ms, p.cached_ms}) : "-",
                      both ? digits(p.cost.bytes / p.ms / 1e6) : "-",
                      both ? digits(p.cost.flops / p.ms / 1e9) : "-"});
  }
  void add(const char* name, double ms) {
    table_.push_back({name, "", fmt::format("{:.3f}", ms), share(ms), "", "", "", ""});
  }
  TextTable finish() {
    const double step = step_ms(row_);
    table_.push_back(
        {"step", "", fmt::format("{:.3f}", step), "", fmt::format("{:.3f}", row_.own_roofline_ms()),
         share_of({step, row_.own_roofline_ms(), row_.own_roofline_ms(), row_.roofline().cached}), "", ""});
    add("roofline: the optimized preset's ops", row_.roofline_ms());
    return std::move(table_);
  }

 private:
  static std::string share_of(const RooflineFacts& f) {
    return of_roofline_text(f.own / f.measured, why_below_roofline(f));
  }
  std::string share(double ms) const { return fmt::format("{:.1f} %", 100 * ms / step_ms(row_)); }

  const StepRow& row_;
  TextTable table_;
};

// Whole where every step had the same kernels.
std::string count(double kernels) {
  return kernels == std::floor(kernels) ? fmt::format("{:.0f}", kernels) : fmt::format("{:.1f}", kernels);
}

TextTable kernel_parts_table(const StepRow& r) {
  const KernelSplit& split = *r.split->kernels;
  SplitTable table(r, "kernels");
  for (const PartTime& p : with_rooflines(split, r.planned, r.best))
    table.add({name_of(p.what), count(p.kernels), p.ms, p.roofline_ms,
               cached_ms(r, r.planned, [&](const TimedOp& op) { return part_of(op) == p.what; }), p.cost});
  if (split.overlap_ms() > 0.0005) table.add("overlap", -split.overlap_ms());
  table.add("gaps", split.gaps_ms());
  table.add("traced step", split.span_ms);
  return table.finish();
}

Json kernels_json(const StepRow& r) {
  const KernelSplit& split = *r.split->kernels;
  Json classes = Json::object(), kernels = Json::array();
  for (const PartTime& p : with_rooflines(split, r.planned, r.best)) {
    classes[std::string(name_of(p.what))] = {{"kernels", p.kernels},
                                             {"ms", p.ms},
                                             {"own_roofline_ms", p.roofline_ms},
                                             {"flops", p.cost.flops},
                                             {"bytes", p.cost.bytes}};
  }
  for (const KernelTotal& k : split.kernels) {
    kernels.push_back({{"name", short_kernel_name(k.name)},
                       {"class", name_of(k.part)},
                       {"calls", k.calls},
                       {"ms", k.ms},
                       {"mean_us", 1e3 * k.ms / k.calls},
                       {"of_step", k.ms / step_ms(r)}});
  }
  return {{"by", "kernels"},
          {"steps", split.steps},
          {"attributed", r.split->attributed},
          {"classes", classes},
          {"sum_ms", split.sum_ms},
          {"overlap_ms", split.overlap_ms()},
          {"gaps_ms", split.gaps_ms()},
          {"traced_step_ms", split.span_ms},
          {"step_ms", step_ms(r)},
          {"kernels", kernels}};
}

}  // namespace

TextTable split_table(const StepRow& r) {
  if (r.split->kernels) return kernel_parts_table(r);
  SplitTable table(r, "calls");
  for (const ClassTime& c : by_class(r.split->ops, r.best))
    table.add({name_of(c.what), fmt::format("{}", c.calls), c.ms, c.floor_ms,
               cached_ms(r, r.split->ops, [&](const TimedOp& op) { return class_of(op.op) == c.what; }),
               c.cost});
  table.add("gaps", gaps_ms(r));
  return table.finish();
}

TextTable kernel_table(const StepRow& r, int most) {
  if (!r.split->kernels) return {};
  TextTable table = {{"kernel", "part", "calls", "ms", "mean us", "of step"}};
  const std::vector<KernelTotal>& all = r.split->kernels->kernels;
  const std::size_t shown = std::min(all.size(), static_cast<std::size_t>(std::max(0, most)));
  for (std::size_t i = 0; i < shown; ++i) {
    const KernelTotal& k = all[i];
    table.push_back({short_kernel_name(k.name), std::string(name_of(k.part)), count(k.calls),
                     fmt::format("{:.3f}", k.ms), digits(1e3 * k.ms / k.calls),
                     fmt::format("{:.1f} %", 100 * k.ms / step_ms(r))});
  }
  return table;
}

Json split_json(const StepRow& r) {
  if (r.split->kernels) return kernels_json(r);
  Json classes = Json::object(), ops = Json::array();
  for (const ClassTime& c : by_class(r.split->ops, r.best)) {
    classes[std::string(name_of(c.what))] = {{"calls", c.calls},
                                             {"ms", c.ms},
                                             {"own_roofline_ms", c.floor_ms},
                                             {"flops", c.cost.flops},
                                             {"bytes", c.cost.bytes}};
  }
  for (const OpTotal& t : by_op(r.split->ops, r.best)) {
    ops.push_back({{"op", t.op.op},
                   {"variant", t.op.variant},
                   {"pass", t.op.pass == Pass::forward ? "forward" : "backward"},
                   {"recomputed", t.op.recomputed},
                   {"class", name_of(class_of(t.op.op))},
                   {"calls", t.calls},
                   {"ms", t.op.ms},
                   {"own_roofline_ms", t.floor_ms},
                   {"flops", t.op.cost.flops},
                   {"bytes", t.op.cost.bytes}});
  }
  return {{"by", "ops"},           {"classes", classes},    {"sum_ms", r.split->ops_ms()},
          {"gaps_ms", gaps_ms(r)}, {"step_ms", step_ms(r)}, {"ops", ops}};
}

}  // namespace kiln
