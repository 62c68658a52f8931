#include "report/export/timeline.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace kiln {

int Timeline::add_lane(std::string name) {
  lanes_.push_back(std::move(name));
  return static_cast<int>(lanes_.size()) - 1;
}

uint32_t Timeline::detail(std::string name, std::string category, Json arguments) {
  std::string key = name;
  key.append(1, '\0').append(category);
  if (!arguments.empty()) key.append(1, '\0').append(arguments.dump());
  const auto [found, fresh] = numbers_.try_emplace(std::move(key), static_cast<uint32_t>(details_.size()));
  if (fresh) details_.push_back({std::move(name), std::move(category), std::move(arguments)});
  return found->second;
}

std::size_t Timeline::add_span(int lane, uint32_t detail, double begin_us, double us) {
  spans_.push_back({lane, detail, begin_us, us});
  return spans_.size() - 1;
}

std::size_t Timeline::add_span(int lane, std::string name, std::string category, double begin_us, double us,
                               Json arguments) {
  return add_span(lane, detail(std::move(name), std::move(category), std::move(arguments)), begin_us, us);
}

void Timeline::end_span(std::size_t span, double end_us) { spans_[span].us = end_us - spans_[span].begin_us; }

void Timeline::add_counter(const std::string& name, double at_us, double value) {
  const auto found = std::find(counters_.begin(), counters_.end(), name);
  const auto number = static_cast<uint32_t>(found - counters_.begin());
  if (found == counters_.end()) counters_.push_back(name);
  points_.push_back({number, at_us, value});
}

double Timeline::zero_us() const {
  double zero = std::numeric_limits<double>::max();
  for (const Span& s : spans_) zero = std::min(zero, s.begin_us);
  for (const Point& p : points_) zero = std::min(zero, p.at_us);
  return zero;
}

std::vector<uint32_t> Timeline::in_order() const {
  std::vector<uint32_t> order(spans_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return spans_[a].begin_us != spans_[b].begin_us ? spans_[a].begin_us < spans_[b].begin_us
                                                    : spans_[a].us > spans_[b].us;
  });
  return order;
}

}  // namespace kiln
