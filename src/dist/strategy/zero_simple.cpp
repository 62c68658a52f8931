#include "dist/strategy/zero_simple.h"

#include <algorithm>

namespace kiln {

void SimpleZeroStrategy::refresh() {
  DdpStrategy::refresh();
  load_.resize(static_cast<std::size_t>(comm_.world()));
  std::vector<ParamSpan> fresh = params_->spans();
  std::erase_if(fresh, [&](const ParamSpan& s) { return owners_.contains(s.name); });
  std::vector<int64_t> sizes;
  sizes.reserve(fresh.size());
  for (const ParamSpan& s : fresh) sizes.push_back(s.value.numel());
  const std::vector<int> owners = assign_owners(sizes, load_);
  for (std::size_t i = 0; i < fresh.size(); ++i) owners_[fresh[i].name] = owners[i];
}

std::vector<ParamSpan> SimpleZeroStrategy::spans(const ParamStore& params, SpanUnit /*unit*/) const {
  std::vector<ParamSpan> all = params.spans();
  std::erase_if(all, [&](const ParamSpan& s) { return owners_.at(s.name) != comm_.rank(); });
  return all;
}

void SimpleZeroStrategy::after_update() {
  std::vector<CommHandle> handles;
  auto send = [&](const Tensor& t, const ParamSpan& s) {
    handles.push_back(comm_.broadcast(ctx_, t, owners_.at(s.name), s.name));
    volume_.broadcast += t.bytes().value;
  };
  for (const ParamSpan& s : params_->spans()) {
    send(s.value, s);
    if (s.low.defined()) send(s.low.view_as(DType::bf16), s);
  }
  for (const CommHandle& h : handles) wait(h);
}

}  // namespace kiln
