#include "perf/trace/kernel_attribution.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>

#include "ops/op_list.h"
#include "perf/trace/kernel_name.h"

namespace kiln {
namespace {

constexpr std::size_t kMostCells = std::size_t{1} << 26;  // of the table that aligns two steps

bool is_launch(const std::string& call) {
  return call.find("Launch") != std::string::npos || call.find("Memcpy") != std::string::npos ||
         call.find("Memset") != std::string::npos;
}

double us_from(uint64_t ns, uint64_t zero_ns) {  // before `zero` is negative
  return static_cast<double>(static_cast<int64_t>(ns - zero_ns)) / 1e3;
}

TraceLane lane_of(const KernelRecord& r) {
  if (r.kind != KernelRecord::Kind::kernel) return TraceLane::copy;
  return r.name.find("nccl") != std::string::npos ? TraceLane::communication : TraceLane::gpu;
}

std::unordered_map<uint32_t, const CallRecord*> by_number(const std::vector<CallRecord>& calls) {
  std::unordered_map<uint32_t, const CallRecord*> found;
  for (const CallRecord& c : calls) found.emplace(c.correlation, &c);
  return found;
}

}  // namespace

KernelGroup group_of(const KernelRecord& record, const TracedOp* op) {
  if (record.kind != KernelRecord::Kind::kernel) return KernelGroup::copy;
  const bool library = of_a_library(record.name);
  if (op == nullptr) return library ? KernelGroup::matmul : KernelGroup::elementwise;
  if (kind_of_op(op->op) == OpKind::gemm_loss) return library ? KernelGroup::matmul : KernelGroup::reduction;
  return group_of_op(op->op);
}

uint32_t main_stream(const std::vector<KernelRecord>& kernels) {
  std::map<uint32_t, int> count;
  for (const KernelRecord& k : kernels) count[k.stream] += k.kind == KernelRecord::Kind::kernel ? 1 : 0;
  const auto most = std::max_element(count.begin(), count.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == count.end() ? 0 : most->first;
}

std::vector<StepKernels> by_step(const StepRecords& records) {
  const std::size_t count = records.begins_ns.empty() ? 0 : records.begins_ns.size() - 1;
  std::vector<StepKernels> steps(count);
  const uint32_t stream = main_stream(records.kernels);
  const auto calls = by_number(records.calls);
  auto step_at = [&](uint64_t ns) -> StepKernels* {
    const auto after = std::upper_bound(records.begins_ns.begin(), records.begins_ns.end(), ns);
    const auto at = static_cast<std::size_t>(after - records.begins_ns.begin());
    return at == 0 || at > count ? nullptr : &steps[at - 1];
  };
  for (const KernelRecord& k : records.kernels) {
    const auto call = calls.find(k.correlation);
    if (call == calls.end()) continue;  // of what was queued before
    StepKernels* step = step_at(call->second->start_ns);
    if (step == nullptr) continue;
    step->kernels.push_back(k);
    step->ops.push_back(-1);
    if (k.stream == stream) step->end_ns = std::max(step->end_ns, k.end_ns);
  }
  for (const CallRecord& c : records.calls) {
    StepKernels* step = is_launch(c.name) ? step_at(c.start_ns) : nullptr;
    if (step != nullptr)
      step->calls.push_back(
          {c.name, us_from(c.start_ns, records.zero_ns), us_from(c.end_ns, records.zero_ns)});
  }
  return steps;
}

std::vector<StepKernels> by_count(const StepRecords& records) {
  const uint32_t stream = main_stream(records.kernels);
  std::vector<KernelRecord> in_line;
  std::copy_if(records.kernels.begin(), records.kernels.end(), std::back_inserter(in_line),
               [&](const KernelRecord& k) { return k.stream == stream; });
  const std::size_t count = records.begins_ns.empty() ? 0 : records.begins_ns.size() - 1;
  if (count == 0 || in_line.empty() || in_line.size() % count != 0) return {};
  std::vector<StepKernels> steps(count);
  for (std::size_t i = 0; i < in_line.size(); ++i) {
    StepKernels& step = steps[i / (in_line.size() / count)];
    step.end_ns = std::max(step.end_ns, in_line[i].end_ns);
    step.kernels.push_back(std::move(in_line[i]));
    step.ops.push_back(-1);
  }
  return steps;
}

void attribute_launched(StepKernels& step, const StepRecords& records, const std::vector<TracedOp>& ops,
                        uint32_t stream) {
  const auto calls = by_number(records.calls);
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    const KernelRecord& k = step.kernels[i];
    const auto call = calls.find(k.correlation);
    if (k.stream != stream || call == calls.end()) continue;
    const double at = us_from(call->second->start_ns, records.zero_ns);
    const auto op = std::lower_bound(ops.begin(), ops.end(), at,
                                     [](const TracedOp& o, double moment) { return o.end_us < moment; });
    if (op != ops.end()) step.ops[i] = static_cast<int>(op - ops.begin());
  }
}

KernelOrder order_of(const StepKernels& step, uint32_t stream) {
  KernelOrder order;
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    if (step.kernels[i].stream != stream) continue;
    order.names.push_back(step.kernels[i].name);
    order.op_of.push_back(step.ops[i]);
  }
  return order;
}

std::vector<int> align(const std::vector<std::string>& order, const std::vector<std::string>& names) {
  std::vector<int> places(names.size(), -1);
  std::size_t head = 0, order_end = order.size(), names_end = names.size();
  while (head < order_end && head < names_end && order[head] == names[head]) {
    places[head] = static_cast<int>(head);
    ++head;
  }
  while (order_end > head && names_end > head && order[order_end - 1] == names[names_end - 1])
    places[--names_end] = static_cast<int>(--order_end);
  const std::size_t rows = order_end - head, cols = names_end - head;
  if (rows == 0 || cols == 0 || rows * cols > kMostCells) return places;
  // length[i][j]: of the longest common sequence of what follows i and j
  std::vector<uint16_t> length((rows + 1) * (cols + 1), 0);
  auto at = [&](std::size_t i, std::size_t j) -> uint16_t& { return length[i * (cols + 1) + j]; };
  for (std::size_t i = rows; i-- > 0;) {
    for (std::size_t j = cols; j-- > 0;) {
      at(i, j) = order[head + i] == names[head + j] ? static_cast<uint16_t>(at(i + 1, j + 1) + 1)
                                                    : std::max(at(i + 1, j), at(i, j + 1));
    }
  }
  for (std::size_t i = 0, j = 0; i < rows && j < cols;) {
    if (order[head + i] == names[head + j]) {
      places[head + j++] = static_cast<int>(head + i++);
    } else if (at(i + 1, j) >= at(i, j + 1)) {
      ++i;
    } else {
      ++j;
    }
  }
  return places;
}

void attribute_replayed(StepKernels& step, const KernelOrder& order, uint32_t stream) {
  std::vector<std::string> names;
  std::vector<std::size_t> index;
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    if (step.kernels[i].stream != stream) continue;
    names.push_back(step.kernels[i].name);
    index.push_back(i);
  }
  const std::vector<int> places = align(order.names, names);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= 0) step.ops[index[i]] = order.op_of[static_cast<std::size_t>(places[i])];
  }
}

Trace trace_of(const StepKernels& step, uint64_t begin_ns, uint64_t zero_ns, std::vector<TracedOp> ops) {
  Trace t;
  t.ops = std::move(ops);
  t.begin_us = us_from(begin_ns, zero_ns);
  t.end_us = us_from(step.end_ns, zero_ns);
  t.calls = step.calls;
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    const KernelRecord& k = step.kernels[i];
    const int op = step.ops[i];
    t.spans.push_back({lane_of(k), group_of(k, op >= 0 ? &t.ops[static_cast<std::size_t>(op)] : nullptr),
                       k.name, op, us_from(k.start_ns, zero_ns), us_from(k.end_ns, zero_ns)});
  }
  return t;
}

double attributed_share(const StepKernels& step, uint32_t stream) {
  double all = 0, known = 0;
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    const KernelRecord& k = step.kernels[i];
    if (k.stream != stream) continue;
    // Tokens come and the loss goes by copies that belong to no op.
    if (k.kind == KernelRecord::Kind::copy && step.ops[i] < 0) continue;
    const auto ns = static_cast<double>(k.end_ns - k.start_ns);
    all += ns;
    known += step.ops[i] >= 0 ? ns : 0;
  }
  return all > 0 ? known / all : 1;
}

}  // namespace kiln
