// What the fused CUDA kernels on rows share that a build without CUDA needs too, since `meta` predicts what a
// GPU would do: which rows they take, how many threads share one, and the scratch of a sum over rows.
#pragma once

#include <algorithm>

#include "ops/variant.h"
#include "ops/vectorizable.h"

namespace kiln {

inline constexpr const char* kNotVectorizable =
    "takes tensors whose rows begin at multiples of 16 bytes; one of these has rows that do not";

// Threads that share a row, each keeping some packs of it in registers.
struct RowGroups {
  int threads = 32;        // of one row
  int packs = 1;           // in each of them
  int rows_per_block = 1;  // more than one only where a row is a warp's
  int64_t blocks = 0;
};

// Short rows have a warp each, four to a block; long ones a block. No more blocks than keep each of an H200's
// 132 multiprocessors busy: each walks several rows. Fewer in backward, since each leaves a partial sum of
// the weight gradient.
inline RowGroups row_groups(int64_t rows, int64_t row_bytes, Pass pass) {
  const int64_t packs = (row_bytes + kVectorBytes - 1) / kVectorBytes;
  RowGroups g;
  while (g.threads < 512 && packs > int64_t{g.threads} * (g.threads == 32 ? 4 : 2)) g.threads *= 2;
  g.packs = static_cast<int>(std::max<int64_t>(1, (packs + g.threads - 1) / g.threads));
  if (g.threads == 32) g.rows_per_block = 4;
  // Of a multiprocessor; in backward as many as the register file holds at once.
  const int64_t threads = pass == Pass::forward ? 2048 : g.rows_per_block > 1 ? 384 : 512;
  g.blocks = std::min<int64_t>((rows + g.rows_per_block - 1) / g.rows_per_block,
                               132 * threads / (g.threads * g.rows_per_block));
  return g;
}

template <class Problem>
RowGroups row_groups(const Problem& p, Pass pass) {
  return row_groups(p.rows, p.cols * static_cast<int64_t>(size_of(p.dtype)), pass);
}

// Rows of whole packs, up to 32 KiB, so that one block holds one in registers.
template <class Problem>
std::string needs_packed_rows(const Problem& p, const DeviceTraits&) {
  if (p.dtype == DType::f64) return "computes in fp32, fp64 runs on naive";
  const int64_t bytes = p.cols * static_cast<int64_t>(size_of(p.dtype));
  if (bytes % kVectorBytes != 0) return cat("takes rows of whole 16 bytes; these have ", bytes);
  if (!p.vectorizable) return kNotVectorizable;
  if (bytes > 2048 * kVectorBytes) return cat("takes rows of up to 32 KiB; these have ", bytes, " bytes");
  return {};
}

// Half of that for kernels that keep several rows at once, or a row and its weights.
template <class Problem>
std::string needs_short_packed_rows(const Problem& p, const DeviceTraits& traits) {
  const int64_t bytes = p.cols * static_cast<int64_t>(size_of(p.dtype));
  if (bytes > 1024 * kVectorBytes) return cat("takes rows of up to 16 KiB; these have ", bytes, " bytes");
  return needs_packed_rows(p, traits);
}

// Of a block. A thread has more than two packs of such rows only where a row is a warp's, four to a block.
constexpr int most_threads(int packs) { return packs > 2 ? 128 : 512; }

template <class Problem>
std::string needs_packs(const Problem& p, const DeviceTraits&) {
  if (p.dtype == DType::f64) return "computes in fp32, fp64 runs on naive";
  const int64_t bytes = p.cols * static_cast<int64_t>(size_of(p.dtype));
  if (bytes % kVectorBytes != 0) return cat("takes rows of whole 16 bytes; these have ", bytes);
  return p.vectorizable ? "" : kNotVectorizable;
}

// One partial sum per block and column.
template <class Problem>
std::size_t block_partials_workspace(const Problem& p, Pass pass) {
  return pass == Pass::backward
             ? static_cast<std::size_t>(row_groups(p, pass).blocks * p.cols) * sizeof(float)
             : 0;
}

}  // namespace kiln
