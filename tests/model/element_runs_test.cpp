// Runs of elements against the list of them, written out.
#include "model/element_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kiln {
namespace {

std::vector<int64_t> written_out(const ElementRuns& e) {
  std::vector<int64_t> all;
  for (int64_t r = 0; r < e.runs; ++r) {
    for (int64_t i = 0; i < e.run; ++i) all.push_back(e.begin + r * e.stride + i);
  }
  return all;
}

class ElementRunsOf : public testing::TestWithParam<ElementRuns> {};
INSTANTIATE_TEST_SUITE_P(Shapes, ElementRunsOf,
                         testing::Values(ElementRuns::range(0, 1), ElementRuns::range(5, 9),
                                         ElementRuns{0, 2, 4, 4}, ElementRuns{3, 2, 3, 5},
                                         ElementRuns{7, 1, 5, 3}, ElementRuns{2, 4, 1, 11}));

TEST_P(ElementRunsOf, AreCountedAndMetInOrder) {
  const ElementRuns e = GetParam();
  const std::vector<int64_t> all = written_out(e);
  ASSERT_EQ(e.count(), static_cast<int64_t>(all.size()));
  for (int64_t element = 0; element < 40; ++element)
    EXPECT_EQ(e.before(element), std::lower_bound(all.begin(), all.end(), element) - all.begin()) << element;
  for (int64_t first = 0; first <= e.count(); ++first) {
    for (int64_t last = first; last <= e.count(); ++last) {
      std::vector<int64_t> met;
      e.for_each_run(first, last, [&](int64_t element, int64_t offset, int64_t n) {
        EXPECT_GT(n, 0);
        EXPECT_EQ(offset, static_cast<int64_t>(met.size()));
        for (int64_t i = 0; i < n; ++i) met.push_back(element + i);
      });
      EXPECT_EQ(met, std::vector<int64_t>(all.begin() + first, all.begin() + last)) << first << ", " << last;
    }
  }
}

}  // namespace
}  // namespace kiln
