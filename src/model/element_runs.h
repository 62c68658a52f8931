// Which elements of a tensor a rank has: runs of equal length at equal distances. A contiguous range is one
// run; some columns of a matrix are one run a row.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>

namespace kiln {

struct ElementRuns {
  int64_t begin = 0;   // the first element
  int64_t run = 0;     // elements of each run
  int64_t runs = 1;    // how many
  int64_t stride = 0;  // from one run's begin to the next one's; of a single run, its length

  static ElementRuns range(int64_t begin, int64_t count) { return {begin, count, 1, count}; }

  int64_t count() const { return run * runs; }
  // How many of these are before `element` of the tensor.
  int64_t before(int64_t element) const {
    if (element <= begin) return 0;
    const int64_t distance = element - begin;
    return std::min(distance / stride * run + std::min(distance % stride, run), count());
  }
  // Numbers `first` up to `last` of these, run by run: f(element, offset, n) for n of them that are at
  // `element` of the tensor, `offset` behind number `first`.
  template <class F>
  void for_each_run(int64_t first, int64_t last, F&& f) const {
    for (int64_t i = first; i < last;) {
      const int64_t n = std::min(run - i % run, last - i);
      f(begin + i / run * stride + i % run, i - first, n);
      i += n;
    }
  }

  friend auto operator<=>(const ElementRuns&, const ElementRuns&) = default;
};

}  // namespace kiln
