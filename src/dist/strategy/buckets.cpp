#include "dist/strategy/buckets.h"

#include <algorithm>

namespace kiln {

std::vector<std::vector<int>> assign_buckets(std::span<const int64_t> bytes, double cap) {
  std::vector<std::vector<int>> buckets;
  std::vector<int> open;
  double filled = 0;
  for (int i = 0; i < static_cast<int>(bytes.size()); ++i) {
    const auto size = static_cast<double>(bytes[static_cast<std::size_t>(i)]);
    if (size > cap) {
      buckets.push_back({i});
      continue;
    }
    if (!open.empty() && filled + size > cap) {
      buckets.push_back(std::move(open));
      open = {};
      filled = 0;
    }
    open.push_back(i);
    filled += size;
  }
  if (!open.empty()) buckets.push_back(std::move(open));
  std::sort(buckets.begin(), buckets.end(), [](const auto& a, const auto& b) { return a.back() < b.back(); });
  return buckets;
}

std::vector<int> assign_owners(std::span<const int64_t> sizes, std::span<int64_t> load) {
  std::vector<int> owners;
  owners.reserve(sizes.size());
  for (const int64_t size : sizes) {
    const auto least = std::min_element(load.begin(), load.end());
    owners.push_back(static_cast<int>(least - load.begin()));
    *least += size;
  }
  return owners;
}

std::vector<Bucket> make_buckets(ParamStore& params, double cap, double share) {
  std::vector<Param*> trainable;
  for (Param& p : params.params()) {
    if (p.trainable) trainable.push_back(&p);
  }
  std::sort(trainable.begin(), trainable.end(),
            [](const Param* a, const Param* b) { return a->offset < b->offset; });
  const auto element = static_cast<int64_t>(size_of(params.grads().dtype()));
  std::vector<int64_t> bytes;
  bytes.reserve(trainable.size());
  for (const Param* p : trainable) bytes.push_back(p->padded * element);

  double all = 0;
  for (const int64_t b : bytes) all += static_cast<double>(b);
  std::vector<Bucket> buckets;
  for (const std::vector<int>& members : assign_buckets(bytes, std::min(cap, share * all))) {
    Bucket& b = buckets.emplace_back();
    for (const int i : members) {
      Param* p = trainable[static_cast<std::size_t>(i)];
      if (!b.params.empty() && b.params.back()->offset + b.params.back()->padded != p->offset)
        b.neighbours = false;
      b.params.push_back(p);
      b.elements += p->padded;
    }
    b.name = b.params.front()->name;
    if (b.params.size() > 1) b.name += cat(" and ", b.params.size() - 1, " more");
    if (b.neighbours && params.grads().numel() == params.total())
      b.range = params.grads().narrow(0, b.params.front()->offset, b.elements);
  }
  return buckets;
}

}  // namespace kiln
