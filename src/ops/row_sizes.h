// What the cost functions of ops on rows count in.
#pragma once

#include "base/cost.h"
#include "base/dtype.h"

namespace kiln {

struct RowSizes {
  double n;       // elements of a [rows, cols] tensor
  double matrix;  // bytes of it
  double stats;   // bytes of one statistic a row
  double weight;  // bytes of one value a column
  double column;  // bytes of one value a row, in the dtype of the data
};

template <class Problem>
RowSizes row_sizes(const Problem& p) {
  const double rows = static_cast<double>(p.rows), cols = static_cast<double>(p.cols);
  const double e = static_cast<double>(size_of(p.dtype)),
               stat = static_cast<double>(size_of(stat_dtype(p.dtype)));
  return {rows * cols, rows * cols * e, rows * stat, cols * e, rows * e};
}

}  // namespace kiln
