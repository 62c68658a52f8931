// The kernels of a vocabulary that is cut over ranks: ids of its part, and rows of logits of which each rank
// has some columns. They are forward only: what differs from the whole is which columns there are.
#pragma once

#include <cmath>
#include <cstdint>

#include "autograd/rank_context.h"
#include "base/hd.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"

namespace kiln {

struct VocabPart {
  int64_t first, rows;  // those that are here
  int64_t whole;        // of all ranks

  // As an id of the part: kTokenElsewhere where another has it, kIgnoreTarget as it is, -1 where nobody has.
  KILN_HD int32_t local(int32_t id) const {
    if (id >= first && id < first + rows) return static_cast<int32_t>(id - first);
    if (id >= 0 && id < whole) return kTokenElsewhere;
    return id == kIgnoreTarget ? id : -1;
  }
};

// What a rank knows of a row, in the order it is sent: the log of its columns' sum of exponentials, and the
// target's logit, 0 where it is elsewhere, NaN where it is nowhere.
struct RowPart {
  float lse, target;
};

Tensor local_ids(RankContext& ctx, const Tensor& ids, const VocabPart& here);  // int32, of the same shape
// parts[r] from logits [rows, V of the part] and ids of the part.
void row_parts(RankContext& ctx, const Tensor& logits, const Tensor& local_targets, const Tensor& parts);
// parts [ranks, rows] of all ranks, in rank order: each row's lse over the whole vocabulary, and its loss.
void join_row_parts(RankContext& ctx, const Tensor& parts, const Tensor& local_targets, const Tensor& lse,
                    const Tensor& losses);
// The mean over rows whose target is not kIgnoreTarget. `count` may be undefined.
void mean_of_rows(RankContext& ctx, const Tensor& losses, const Tensor& local_targets, const Tensor& loss,
                  const Tensor& count);

// One row, for both devices.
KILN_HD inline float joined_lse(const RowPart* parts, int ranks, int64_t rows) {
  float top = -3.402823466e38f;  // finite: a rank whose columns are all -Inf then adds 0
  for (int i = 0; i < ranks; ++i) top = parts[i * rows].lse > top ? parts[i * rows].lse : top;
  float sum = 0;
  for (int i = 0; i < ranks; ++i) sum += std::exp(parts[i * rows].lse - top);
  return top + std::log(sum);
}
KILN_HD inline float joined_target(const RowPart* parts, int ranks, int64_t rows) {
  float sum = 0;  // one of them has it
  for (int i = 0; i < ranks; ++i) sum += parts[i * rows].target;
  return sum;
}

void local_ids_cuda(RankContext& ctx, const Tensor& ids, const VocabPart& here, const Tensor& out);
void row_parts_cuda(RankContext& ctx, const Tensor& logits, const Tensor& local_targets, const Tensor& parts);
void join_row_parts_cuda(RankContext& ctx, const Tensor& parts, const Tensor& local_targets,
                         const Tensor& lse, const Tensor& losses);
void mean_of_rows_cuda(RankContext& ctx, const Tensor& losses, const Tensor& local_targets,
                       const Tensor& loss, const Tensor& count);

}  // namespace kiln
