// How the fused CUDA variant cuts its rows into chunks and lays out its scratch: in every build, because
// `meta` predicts what a GPU would use.
#pragma once

#include <algorithm>

#include "ops/linear_cross_entropy/linear_cross_entropy.h"

namespace kiln {

// The scratch: one chunk's logits, then every row's loss.
struct CudaLossChunks {
  int64_t rows;        // of a chunk; the last one may have fewer
  int64_t row_stride;  // elements between rows of logits: whole 128 bytes, which the matmuls read best
  std::size_t losses;  // where they begin
  std::size_t total;

  explicit CudaLossChunks(const LinearCrossEntropyProblem& p) {
    const auto size = static_cast<int64_t>(size_of(p.dtype));
    row_stride = (p.vocab * size + 127) / 128 * 128 / size;
    const int64_t most = std::max<int64_t>(1, p.chunk_rows > 0 ? p.chunk_rows : best_rows(row_stride * size));
    const int64_t chunks = std::max<int64_t>(1, (p.rows + most - 1) / most);
    rows = (p.rows + chunks - 1) / chunks;
    // Whole matmul tiles, where that makes no chunk larger than it may be.
    rows = std::min((rows + 127) / 128 * 128, std::min(most, p.rows));
    losses = static_cast<std::size_t>(rows * row_stride * size);
    total = losses + static_cast<std::size_t>(p.rows) * sizeof(float);
  }

  // Each chunk after the first reads and writes all of dW in fp32, 8 bytes an element, for 6 operations
  // an element and row. At 4.2 TB/s and 710 TFLOP/s that is 22 % of the matmuls' time with 1024 rows and 6 %
  // with 4096. So: 256 MiB of logits, but 4096 rows where they fit in 1.25 GiB, and never fewer than 1024.
  static int64_t best_rows(int64_t row_bytes) {
    const int64_t bytes = std::max<int64_t>(1, row_bytes);
    const int64_t large = std::min<int64_t>(4096, (int64_t{1280} << 20) / bytes);
    return std::max({(int64_t{256} << 20) / bytes, large, int64_t{1024}});
  }
};

}  // namespace kiln
