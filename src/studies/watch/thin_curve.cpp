#include "studies/watch/thin_curve.h"

#include <algorithm>
#include <cmath>

namespace kiln {
namespace {

void merge(CurveBin& into, const CurveBin& other) {
  into.last = other.last;
  into.count += other.count;
  into.sum += other.sum;
  into.least = std::min(into.least, other.least);
  into.most = std::max(into.most, other.most);
}

}  // namespace

void ThinCurve::add(int64_t step, double value) {
  if (!std::isfinite(value)) return;
  const CurveBin one{step, step, 1, value, value, value};
  if (!bins_.empty() && bins_.back().count < width_) {
    merge(bins_.back(), one);
    return;
  }
  if (bins_.size() == most_bins_) {
    halve();
    if (bins_.back().count < width_) {
      merge(bins_.back(), one);
      return;
    }
  }
  bins_.push_back(one);
}

void ThinCurve::halve() {
  std::vector<CurveBin> wider;
  wider.reserve(most_bins_);
  for (std::size_t i = 0; i < bins_.size(); i += 2) {
    wider.push_back(bins_[i]);
    if (i + 1 < bins_.size()) merge(wider.back(), bins_[i + 1]);
  }
  bins_ = std::move(wider);
  width_ *= 2;
}

std::vector<double> ThinCurve::means() const {
  std::vector<double> list;
  list.reserve(bins_.size());
  for (const CurveBin& b : bins_) list.push_back(b.mean());
  return list;
}

}  // namespace kiln
