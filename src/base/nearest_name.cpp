#include "base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace kiln {
namespace {

// Longer input is not a typo, and the cost of comparing grows with the product of the lengths.
constexpr std::size_t kLongestName = 128;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Optimal string alignment distance, three rows at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same ? 0U : 1U)});
      const bool swapped =
          i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view wanted, std::span<const std::string_view> names) {
  if (wanted.empty() || wanted.size() > kLongestName) return {};
  std::string_view best;
  std::size_t best_distance = 0;
  for (const std::string_view name : names) {
    if (name.empty() || name.size() > kLongestName) continue;
    const std::size_t distance = edit_distance(wanted, name);
    // One slip per three characters: more than that is another word, and a wrong suggestion is worse than
    // none.
    if (distance > std::max<std::size_t>(1, std::max(wanted.size(), name.size()) / 3)) continue;
    if (distance >= std::min(wanted.size(), name.size())) continue;
    if (best.empty() || distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return std::string(best);
}

}  // namespace kiln
