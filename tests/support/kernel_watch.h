// Watches an op call: which variant takes which pass, and whether only kernels of that
// variant's own list are started meanwhile.
#pragma once

#include <cctype>
#include <set>
#include <string>
#include <vector>

#include "autograd/rank_context.h"
#include "base/kernel_log.h"
#include "ops/op_list.h"

namespace kiln {

// Without what all names have in common: "void kiln::(anonymous namespace)::f<float>" is "f<float>".
inline std::string plain_kernel(std::string name) {
  for (std::string_view noise : {"void ", "kiln::", "(anonymous namespace)::"}) {
    for (auto at = name.find(noise); at != std::string::npos; at = name.find(noise))
      name.erase(at, noise.size());
  }
  return name;
}

// Whether a kernel's name begins with one of the list, and that ends where a word ends.
inline bool on_list(std::string_view kernel, std::string_view list) {
  while (!list.empty()) {
    const auto space = list.find(' ');
    const std::string_view entry = list.substr(0, space);
    list = space == std::string_view::npos ? std::string_view() : list.substr(space + 1);
    if (!kernel.starts_with(entry)) continue;
    const char next = kernel.size() == entry.size() ? '<' : kernel[entry.size()];
    if (entry.ends_with(',') || (next != '_' && !std::isalnum(static_cast<unsigned char>(next)))) return true;
  }
  return false;
}

class KernelWatch final : public OpObserver {
 public:
  KernelWatch(RankContext& ctx, std::vector<OpListing> ops) : ctx_(ctx), ops_(std::move(ops)) {
    ctx_.add_observer(this);
  }
  explicit KernelWatch(RankContext& ctx) : KernelWatch(ctx, list_ops()) {}
  ~KernelWatch() override { ctx_.remove_observer(this); }
  KernelWatch(const KernelWatch&) = delete;
  KernelWatch& operator=(const KernelWatch&) = delete;

  void on_op_begin(RankContext&, const OpEvent&) override { log_.take(); }  // of no op: between two calls
  void on_op_end(RankContext&, const OpEvent& e) override {
    const std::string row = cat(e.op, "=", e.variant);
    const bool forward = e.pass == Pass::forward;
    calls_.push_back(cat(row, forward ? " forward" : " backward"));
    if (e.op == "compiled")
      return (void)log_.take();  // in no table: its one kernel runs whatever a region holds
    const std::string_view list = forward ? kernels_of(e).forward : kernels_of(e).backward;
    for (const std::string& full : log_.take()) {
      const std::string kernel = plain_kernel(full);
      seen_.insert(row);
      if (!on_list(kernel, list))
        strangers_.push_back(cat(calls_.back(), " started ", kernel, "; its list: ", list));
    }
  }

  const std::vector<std::string>& calls() const { return calls_; }          // "add=fused forward"
  const std::vector<std::string>& strangers() const { return strangers_; }  // kernels of other variants
  const std::set<std::string>& seen() const { return seen_; }  // rows that started any: "add=fused"

 private:
  Kernels kernels_of(const OpEvent& e) const {
    for (const VariantListing& v : find_op(ops_, e.op).variants) {
      if (v.name == e.variant && v.device == ctx_.traits().type) return v.kernels;
    }
    return {};
  }

  RankContext& ctx_;
  std::vector<OpListing> ops_;
  KernelLog log_;
  std::vector<std::string> calls_, strangers_;
  std::set<std::string> seen_;
};

}  // namespace kiln
