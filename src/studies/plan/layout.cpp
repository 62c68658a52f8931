#include "studies/plan/layout.h"

#include <algorithm>

#include "base/error.h"
#include "base/nearest_name.h"
#include "model/partition.h"

namespace kiln {
namespace {

constexpr int kMostStages = 64;

std::vector<int> divisors(int n) {
  std::vector<int> all;
  for (int d = 1; d <= n; ++d)
    if (n % d == 0) all.push_back(d);
  return all;
}

bool wants(const LayoutRequest& q, std::string_view strategy) {
  return q.strategies.empty() ||
         std::find(q.strategies.begin(), q.strategies.end(), strategy) != q.strategies.end();
}

void check_words(const LayoutRequest& q) {
  const std::vector<std::string_view>& known = plan_strategies();
  for (const std::string& s : q.strategies) {
    if (std::find(known.begin(), known.end(), s) != known.end()) continue;
    std::string all;
    for (const std::string_view k : known) all += cat(all.empty() ? "" : ", ", k);
    const std::string near = nearest_name(s, known);
    throw Error(cat("--strategy is '", s, "'; expected some of: ", all),
                near.empty() ? "" : cat("did you mean '", near, "'?"), ErrorKind::usage);
  }
}

void check_divides(const char* option, int part, const LayoutRequest& q) {
  if (q.devices % part == 0) return;
  throw Error(cat(option, " is ", part, ", of which ", q.devices, " devices are no multiple"),
              cat("take a divisor of --devices, or ", (q.devices / part + 1) * part, " devices"),
              ErrorKind::usage);
}

void check_tensor(const LayoutRequest& q, int t) {
  if (q.ffn_only) {
    if (q.model.d_ff % t == 0) return;
    throw Error(cat(q.model.d_ff, " hidden units (d_ff) do not divide among ", t, " tensor-parallel ranks"),
                {}, ErrorKind::usage);
  }
  if (t > q.model.heads)
    throw Error(cat("--tp is ", t, ", more than the model's ", q.model.heads, " heads"),
                cat("a tensor-parallel rank needs a head: take at most ", q.model.kv_heads),
                ErrorKind::usage);
  check_shards(q.model, t);
}

// Those requested, each of which must be possible; else those that are, inside a node.
std::vector<int> tensor_sizes(const LayoutRequest& q) {
  for (const int t : q.tensor) {
    check_divides("--tp", t, q);
    check_tensor(q, t);
  }
  if (!q.tensor.empty()) return q.tensor;
  std::vector<int> sizes;
  for (const int t : divisors(q.devices)) {
    if (t > q.node) break;
    try {
      check_tensor(q, t);
      sizes.push_back(t);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): one that nobody has named
    }
  }
  return sizes;
}

std::vector<int> stage_counts(const LayoutRequest& q) {
  for (const int p : q.stages) {
    check_divides("--pp", p, q);
    if (q.model.layers % p != 0)
      throw Error(cat(q.model.layers, " layers do not divide into ", p, " stages"),
                  "choose a number of stages that divides the layers", ErrorKind::usage);
  }
  if (!q.stages.empty()) return q.stages;
  std::vector<int> counts;
  for (const int p : divisors(q.devices))
    if (p > 1 && p <= kMostStages && q.model.layers % p == 0) counts.push_back(p);
  return counts;
}

// Why a batch cannot be split like that; empty: it can.
std::string why_not(const LayoutRequest& q, int data) {
  if (q.batch % data == 0) return {};
  return cat("batch ", q.batch, " does not divide among ", data, " data-parallel ",
             data == 1 ? "rank" : "ranks");
}

void add(Layouts& out, const LayoutRequest& q, const Layout& layout) {
  if (const std::string why = why_not(q, layout.data); !why.empty())
    out.skipped.push_back({layout.name(), why});
  else
    out.all.push_back(layout);
}

}  // namespace

const std::vector<std::string_view>& plan_strategies() {
  static const std::vector<std::string_view> kNames = {"ddp", "zero1", "zero2", "fsdp", "tp", "pp"};
  return kNames;
}

Layouts layouts_for(const LayoutRequest& q) {
  check_words(q);
  Layouts out;
  for (const int t : tensor_sizes(q)) {
    const int data = q.devices / t;
    if (data == 1) {
      if (t == 1 || wants(q, "tp")) add(out, q, {"none", 1, t, 1});
      continue;
    }
    for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"})
      if (wants(q, strategy)) add(out, q, {strategy, data, t, 1});
  }
  if (wants(q, "pp"))
    for (const int p : stage_counts(q)) add(out, q, {q.devices == p ? "none" : "ddp", q.devices / p, 1, p});
  if (!out.all.empty()) return out;
  if (out.skipped.empty())
    throw Error(cat("no layout of ", q.devices, " devices is left"),
                "name more with --strategy, --tp or --pp", ErrorKind::usage);
  throw Error(cat("no layout of ", q.devices, " devices can split the batch: ", out.skipped.front().reason),
              cat("take --batch ", (q.batch / q.devices + 1) * q.devices, ", or --batch-per-device 1"),
              ErrorKind::usage);
}

}  // namespace kiln
