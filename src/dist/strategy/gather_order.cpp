#include "dist/strategy/gather_order.h"

#include <algorithm>

namespace kiln {

void GatherOrder::begin() {
  seen_.clear();
  here_ = -1;
  taken_ = 0;
  following_ = known();
}

bool GatherOrder::next(Param& p, DType as) {
  if (!seen_.empty() && seen_.back().is(p, as)) {
    ++seen_.back().uses;
  } else {
    seen_.push_back({&p, as, 1});
  }
  if (!following_) return false;
  if (here_ >= 0 && (*this)[here_].is(p, as) && taken_ < uses_at(here_)) {
    ++taken_;
    return true;
  }
  const int64_t wanted = here_ + 1;
  if (taken_ == uses_at(here_) && wanted < size() && (*this)[wanted].is(p, as)) {
    here_ = wanted;
    taken_ = 1;
    return true;
  }
  following_ = false;
  change_ = cat("use ", seen_.size(), " is of ", p.name, " as ", name_of(as), ", expected ",
                wanted < size() ? cat((*this)[wanted].param->name, " as ", name_of((*this)[wanted].as))
                                : std::string("none"));
  return false;
}

bool GatherOrder::adopt() {
  const bool same =
      seen_.size() == order_.size() && std::equal(seen_.begin(), seen_.end(), order_.begin(),
                                                  [](const GatherWindow& a, const GatherWindow& b) {
                                                    return a.is(*b.param, b.as) && a.uses == b.uses;
                                                  });
  if (same) return false;
  if (known()) {
    ++changes_;
    if (following_) change_ = cat("the micro-step ended after ", seen_.size(), " of ", size(), " weights");
  }
  order_ = seen_;
  return true;
}

int64_t GatherOrder::largest() const {
  int64_t bytes = 0;
  for (const GatherWindow& w : order_) bytes = std::max(bytes, w.bytes());
  return bytes;
}

}  // namespace kiln
