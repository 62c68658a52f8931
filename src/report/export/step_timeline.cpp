#include "report/export/step_timeline.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "perf/trace/kernel_name.h"

namespace kiln {
namespace {

struct Lanes {
  int cpu, calls, gpu_ranges, gpu, copy, communication;
};

Json arguments_of(const TracedOp& op) {
  return {{"scope", op.scope},
          {"phase", name_of(op.phase)},
          {"pass", op.backward ? "backward" : "forward"},
          {"recomputed", op.recomputed},
          {"flops", op.cost.flops},
          {"bytes", op.cost.bytes}};
}

// The details of ops, which are the same step after step: the text that tells them apart is made once.
class OpDetails {
 public:
  explicit OpDetails(Timeline& out) : out_(out) {}
  uint32_t of(const TracedOp& op, const std::string* kernel, std::string_view category) {
    key_.assign(kernel != nullptr ? *kernel : std::string());
    for (const std::string* part : {&op.op, &op.variant, &op.scope}) key_.append(1, '\0').append(*part);
    key_.append(1, static_cast<char>(static_cast<int>(op.phase) * 4 + (op.backward ? 2 : 0) +
                                     (op.recomputed ? 1 : 0)));
    for (const double figure : {op.cost.flops, op.cost.bytes}) {
      char bits[sizeof figure];
      std::memcpy(bits, &figure, sizeof figure);
      key_.append(bits, sizeof bits);
    }
    const auto found = numbers_.find(key_);
    if (found != numbers_.end()) return found->second;
    Json arguments = arguments_of(op);
    if (kernel != nullptr) arguments["op"] = cat(op.op, " ", op.variant);
    const uint32_t number =
        out_.detail(kernel != nullptr ? short_kernel_name(*kernel) : cat(op.op, " ", op.variant),
                    std::string(category), std::move(arguments));
    numbers_.emplace(key_, number);
    return number;
  }

 private:
  Timeline& out_;
  std::string key_;
  std::unordered_map<std::string, uint32_t> numbers_;
};

// Opens and closes ranges as ops come: an op outside of a range is what ends it.
class Ranges {
 public:
  Ranges(Timeline& out, int lane, double begin_us) : out_(out), lane_(lane), last_us_(begin_us) {}

  void op(const std::vector<std::string>& path, double begin_us, double end_us) {
    std::size_t same = 0;
    while (same < path.size() && same < open_.size() && path[same] == open_[same].name) ++same;
    close(same);
    const double begin = std::max(begin_us, last_us_);
    for (; same < path.size(); ++same)
      open_.push_back({path[same], out_.add_span(lane_, path[same], "range", begin, 0)});
    last_us_ = std::max(last_us_, end_us);
  }
  void close(std::size_t keep = 0) {
    for (; open_.size() > keep; open_.pop_back()) out_.end_span(open_.back().span, last_us_);
  }

 private:
  struct Open {
    std::string name;
    std::size_t span;
  };
  Timeline& out_;
  int lane_;
  double last_us_;
  std::vector<Open> open_;
};

bool on_gpu(const Trace& t) {
  return std::any_of(t.spans.begin(), t.spans.end(),
                     [](const TraceSpan& s) { return s.lane == TraceLane::gpu; });
}

void add_host(Timeline& out, OpDetails& details, const Lanes& lanes, const Trace& t,
              const std::string& title) {
  for (const HostCall& c : t.calls)
    out.add_span(lanes.calls, c.name, "call", c.begin_us, c.end_us - c.begin_us);
  if (t.replayed || t.ops.empty()) return;
  // On a GPU the host is ahead: its step is what it did, not what the device did.
  const bool gpu = on_gpu(t);
  const double begin = gpu ? t.ops.front().begin_us : t.begin_us, end = gpu ? t.ops.back().end_us : t.end_us;
  out.add_span(lanes.cpu, title, "step", begin, end - begin);
  Ranges ranges(out, lanes.cpu, begin);
  for (const TracedOp& op : t.ops) {
    ranges.op(range_path(op.phase, op.scope), op.begin_us, op.end_us);
    out.add_span(lanes.cpu, details.of(op, nullptr, name_of(group_of_op(op.op))), op.begin_us,
                 op.end_us - op.begin_us);
  }
  ranges.close();
}

void add_device(Timeline& out, OpDetails& details, const Lanes& lanes, const Trace& t,
                const std::string& title) {
  if (!on_gpu(t)) return;
  out.add_span(lanes.gpu_ranges, title, "step", t.begin_us, t.end_us - t.begin_us);
  Ranges ranges(out, lanes.gpu_ranges, t.begin_us);
  for (const TraceSpan& s : t.spans) {
    const TracedOp* op = s.op >= 0 ? &t.ops[static_cast<std::size_t>(s.op)] : nullptr;
    const int lane = s.lane == TraceLane::gpu    ? lanes.gpu
                     : s.lane == TraceLane::copy ? lanes.copy
                                                 : lanes.communication;
    if (op != nullptr) ranges.op(range_path(op->phase, op->scope), s.begin_us, s.end_us);
    out.add_span(lane,
                 op != nullptr ? details.of(*op, &s.name, name_of(s.group))
                               : out.detail(short_kernel_name(s.name), std::string(name_of(s.group))),
                 s.begin_us, s.us());
  }
  ranges.close();
}

}  // namespace

Timeline step_timeline(const std::vector<Trace>& steps, const std::string& title,
                       const TimelineOptions& options) {
  Timeline out(title, options.rank);
  OpDetails details(out);
  const Lanes lanes{out.add_lane("CPU"), out.add_lane("CPU calls"), out.add_lane("GPU ranges"),
                    out.add_lane("GPU"), out.add_lane("copy"),      out.add_lane("communication")};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Trace& t = steps[i];
    const std::string name = cat("step ", options.first_step + static_cast<int64_t>(i));
    add_host(out, details, lanes, t, name);
    add_device(out, details, lanes, t, name);
    for (std::size_t p = 0; p < t.memory.size(); ++p) {
      const bool overtaken = p + 1 < t.memory.size() && t.memory[p + 1].at_us <= t.memory[p].at_us;
      if (!overtaken) out.add_counter("memory", t.memory[p].at_us, static_cast<double>(t.memory[p].bytes));
    }
  }
  for (const CommRecord& c : options.calls)
    out.add_span(lanes.communication, c.subject.empty() ? std::string(name_of(c.collective)) : c.subject,
                 std::string(name_of(c.collective)), 1e-3 * static_cast<double>(c.started),
                 1e-3 * static_cast<double>(c.ended - c.started),
                 {{"collective", name_of(c.collective)}, {"bytes", c.bytes}});
  return out;
}

}  // namespace kiln
