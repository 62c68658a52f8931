#include "perf/kernel_split.h"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>

#include "base/error.h"

namespace kiln {
namespace {

// An op's own kernels are told by their name or by a type among their parameters; both stand in the linker's
// name as they stand in the source.
constexpr KernelPattern kPatterns[] = {
    {"adamw_kernel", KernelPart::update, true},
    {"sgd_kernel", KernelPart::update, true},
    {"flash_", KernelPart::attention, true},
    {"hopper_", KernelPart::attention, true},
    {"AttentionProblem", KernelPart::attention, true},
    {"MaskedSoftmaxProblem", KernelPart::attention, true},
    {"squares_kernel", KernelPart::scalars, true},
    {"judge_kernel", KernelPart::scalars, true},
    {"loss_gradient_kernel", KernelPart::scalars, true},
    {"accumulate_loss_kernel", KernelPart::scalars, true},
    {"CrossEntropyProblem", KernelPart::loss, true},
    {"LogitsChunk", KernelPart::loss, true},
    {"mean_loss_kernel", KernelPart::loss, true},
    {"scale_kernel", KernelPart::loss, true},  // of linear_cross_entropy's backward
    {"write_sums_kernel", KernelPart::gemm, true},
    {"4kiln", KernelPart::pointwise, true},  // the namespace: all our other kernels
    {"nvjet", KernelPart::gemm, false},
    {"gemm", KernelPart::gemm, false},
    {"Gemm", KernelPart::gemm, false},
    {"GEMM", KernelPart::gemm, false},
    {"gemv", KernelPart::gemm, false},
    {"cutlass", KernelPart::gemm, false},
    {"xmma", KernelPart::gemm, false},
    {"splitK", KernelPart::gemm, false},
    {"cublas", KernelPart::gemm, false},
};

std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  if (status == 0 && text) return text.get();
  // nvcc writes some names that no demangler reads: the identifier is still in there, behind its length.
  constexpr std::string_view kEnd = "_kernel";
  const std::size_t at = name.find(kEnd);
  if (name.rfind("_Z", 0) != 0 || at == std::string::npos) return name;
  std::size_t begin = at;
  while (begin > 0 && (name[begin - 1] == '_' || (name[begin - 1] >= 'a' && name[begin - 1] <= 'z'))) --begin;
  return name.substr(begin, at + kEnd.size() - begin);
}

void remove_all(std::string& text, std::string_view what) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at))
    text.erase(at, what.size());
}

constexpr double kMs = 1e-6;  // of a nanosecond

}  // namespace

std::string_view name_of(KernelPart p) {
  constexpr std::array<std::string_view, kKernelParts> kNames = {"gemm",  "loss",    "attention", "pointwise",
                                                                 "adamw", "scalars", "copies"};
  return kNames[static_cast<std::size_t>(p)];
}

std::span<const KernelPattern> kernel_patterns() { return kPatterns; }

KernelPart part_of(const KernelRecord& record) {
  if (record.kind != KernelRecord::Kind::kernel) return KernelPart::copies;
  for (const KernelPattern& p : kPatterns) {
    if (record.name.find(p.text) != std::string::npos) return p.part;
  }
  return KernelPart::pointwise;
}

KernelPart part_of(const TimedOp& op) {
  switch (class_of(op.op)) {
    case OpClass::gemm:
      return KernelPart::gemm;
    case OpClass::attention:
      return KernelPart::attention;
    case OpClass::update:
      return KernelPart::update;
    case OpClass::scalars:
      return KernelPart::scalars;
    case OpClass::head:  // the fused one has all its products in forward, and only scales in backward
      return op.variant == "fused" && op.pass == Pass::backward ? KernelPart::loss : KernelPart::gemm;
    case OpClass::pointwise:
      break;
  }
  return op.op == "cross_entropy" ? KernelPart::loss : KernelPart::pointwise;
}

std::string short_kernel_name(const std::string& name) {
  constexpr std::size_t kMost = 72;
  std::string text = readable(name);
  for (std::string_view part : {"(anonymous namespace)::", "kiln::"}) remove_all(text, part);
  if (text.rfind("void ", 0) == 0) text.erase(0, 5);
  int depth = 0;  // inside <>
  std::size_t open = std::string::npos;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    depth += c == '<' ? 1 : c == '>' ? -1 : 0;
    if (depth == 0 && open == std::string::npos && c == '(') {
      open = i;
    } else if (depth == 0 && open != std::string::npos && (c == ',' || c == ')')) {
      text = text.substr(0, i) + ")";
      break;
    }
  }
  if (text.size() > kMost) text = text.substr(0, kMost - 3) + "...";
  return text;
}

uint64_t busy_ns(std::span<const KernelRecord> records, uint64_t from_ns) {
  uint64_t busy = 0, until = from_ns;  // all before `until` is counted
  for (const KernelRecord& r : records) {
    if (r.end_ns <= until) continue;
    busy += r.end_ns - std::max(r.start_ns, until);
    until = r.end_ns;
  }
  return busy;
}

KernelSplit split_kernels(std::vector<KernelRecord> records, int steps) {
  if (steps < 1 || records.size() < static_cast<std::size_t>(steps) + 1)
    throw Error(cat("[cupti] ", records.size(), " records of kernels came from ", steps + 1, " steps"));
  std::stable_sort(records.begin(), records.end(),
                   [](const KernelRecord& a, const KernelRecord& b) { return a.start_ns < b.start_ns; });
  const std::size_t first = records.size() / (static_cast<std::size_t>(steps) + 1);
  const std::span<const KernelRecord> before(records.data(), first),
      kept(records.data() + first, records.size() - first);
  uint64_t from = 0, to = 0;
  for (const KernelRecord& r : before) from = std::max(from, r.end_ns);
  for (const KernelRecord& r : kept) to = std::max(to, r.end_ns);

  KernelSplit split;
  split.steps = steps;
  const double share = 1.0 / steps;
  split.span_ms = to > from ? static_cast<double>(to - from) * kMs * share : 0;
  split.busy_ms = static_cast<double>(busy_ns(kept, from)) * kMs * share;
  std::array<PartTime, kKernelParts> parts{};
  std::map<std::string_view, KernelTotal> totals;
  for (const KernelRecord& r : kept) {
    const double ms = static_cast<double>(r.end_ns - r.start_ns) * kMs * share;
    const KernelPart part = part_of(r);
    PartTime& p = parts[static_cast<std::size_t>(part)];
    p.kernels += 1;
    p.ms += ms;
    KernelTotal& t = totals[r.name];
    t.part = part;
    t.calls += 1;
    t.ms += ms;
    split.sum_ms += ms;
  }
  for (int i = 0; i < kKernelParts; ++i) {
    PartTime& p = parts[static_cast<std::size_t>(i)];
    p.what = static_cast<KernelPart>(i);
    p.kernels /= steps;  // whole where every step had the same
    if (p.kernels > 0) split.parts.push_back(p);
  }
  for (auto& [name, total] : totals) {
    total.name = name;
    total.calls /= steps;
    split.kernels.push_back(std::move(total));
  }
  std::stable_sort(split.kernels.begin(), split.kernels.end(),
                   [](const KernelTotal& a, const KernelTotal& b) { return a.ms > b.ms; });
  return split;
}

std::vector<PartTime> with_floors(const KernelSplit& split, const std::vector<TimedOp>& planned,
                                  const Rates& best) {
  std::array<PartTime, kKernelParts> all{};
  std::array<bool, kKernelParts> present{};
  for (const PartTime& p : split.parts) {
    all[static_cast<std::size_t>(p.what)] = p;
    present[static_cast<std::size_t>(p.what)] = true;
  }
  for (const TimedOp& op : planned) {
    const auto at = static_cast<std::size_t>(part_of(op));
    all[at].what = static_cast<KernelPart>(at);
    all[at].floor_ms += op.floor_ms(best);
    all[at].cost = all[at].cost + op.cost;
    present[at] = true;
  }
  std::vector<PartTime> parts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (present[i]) parts.push_back(all[i]);
  }
  return parts;
}

}  // namespace kiln
