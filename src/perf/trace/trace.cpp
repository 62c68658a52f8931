#include "perf/trace/trace.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "ops/op_list.h"

namespace kiln {

std::string_view name_of(TraceLane lane) {
  constexpr std::array<std::string_view, kTraceLanes> kNames = {"CPU", "GPU", "copy", "communication"};
  return kNames[static_cast<std::size_t>(lane)];
}

std::string_view name_of(KernelGroup g) {
  constexpr std::array<std::string_view, kKernelGroups> kNames = {"matmul",    "attention",   "softmax",
                                                                  "norm",      "elementwise", "embedding",
                                                                  "reduction", "copy/cast",   "optimizer"};
  return kNames[static_cast<std::size_t>(g)];
}

KernelGroup group_of_op(std::string_view op) {
  switch (kind_of_op(op)) {
    case OpKind::gemm:
    case OpKind::attention_gemm:
    case OpKind::gemm_loss:
      return KernelGroup::matmul;
    case OpKind::attention:
      return KernelGroup::attention;
    case OpKind::attention_softmax:
    case OpKind::softmax:
      return KernelGroup::softmax;
    case OpKind::norm:
      return KernelGroup::norm;
    case OpKind::embedding:
      return KernelGroup::embedding;
    case OpKind::loss:
    case OpKind::reduction:
    case OpKind::scalars:
      return KernelGroup::reduction;
    case OpKind::cast:
      return KernelGroup::copy;
    case OpKind::optimizer:
      return KernelGroup::optimizer;
    case OpKind::elementwise:
      break;
  }
  return KernelGroup::elementwise;
}

int median_step(const std::vector<Trace>& steps) {
  if (steps.empty()) return -1;
  std::vector<int> order(steps.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return steps[static_cast<std::size_t>(a)].ms() < steps[static_cast<std::size_t>(b)].ms();
  });
  return order[(order.size() - 1) / 2];
}

namespace {

std::vector<std::string> parts_of(const std::string& scope) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  while (from <= scope.size()) {
    const std::size_t dot = std::min(scope.find('.', from), scope.size());
    parts.push_back(scope.substr(from, dot - from));
    from = dot + 1;
  }
  return parts;
}

bool is_number(const std::string& part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

std::vector<std::string> range_path(StepPhase phase, const std::string& scope) {
  std::vector<std::string> path = {std::string(name_of(phase))};
  if (scope.empty() || phase == StepPhase::update) return path;
  for (const std::string& part : parts_of(scope)) {
    if (is_number(part) && path.size() > 1) {
      path.back() += "." + part;
    } else {
      path.push_back(part);
    }
  }
  return path;
}

std::string starred(const std::string& scope) {
  std::string text;
  for (const std::string& part : parts_of(scope)) {
    if (!text.empty()) text += '.';
    text += is_number(part) ? "*" : part;
  }
  return text;
}

}  // namespace kiln
