// Tensor parallel: every rank of a group has the same tokens and a shard of every matrix, and what the shards
// compute is summed. Each of a block's two halves is one column-parallel and one row-parallel matmul:
//
//   forward    x (same on all) -> x W1^T by columns -> ... -> W2 by rows -> all-reduce      y, same on all
//   backward   dy (same)       -> dW2, dW1 by shards, no communication    -> all-reduce      dx, same on all
//
// so a layer takes two all-reduces of B x T x C values forward and two backward. What is between the pairs,
// norms and residual sums, is computed by all ranks alike, and their gradients are the same bits everywhere.
// Embedding and head are cut by tokens; see dist/tensor/vocab_loss.h.
#pragma once

#include "dist/comm/communicator.h"
#include "dist/tensor/vocab_rows.h"
#include "model/partition.h"

namespace kiln {

class BackwardPass;

class TensorParallel final : public Partition {
 public:
  // Both must outlive it, and it the tape's nodes. `chunk_rows`: rows whose logits exist at a time, at most;
  // 0: as many as take some 64 MiB.
  TensorParallel(RankContext& ctx, Communicator& comm, int64_t chunk_rows = 0);

  int shard_count() const override { return comm_.world(); }
  int shard_index() const override { return comm_.rank(); }
  Tensor enter_shards(RankContext& ctx, const Tensor& x) const override;
  Tensor leave_shards(RankContext& ctx, const Tensor& y) const override;
  Tensor embed(RankContext& ctx, const Tensor& tokens, Param& weight, int64_t vocab) const override;
  Tensor loss(RankContext& ctx, const Tensor& x, Param& head, int64_t vocab,
              const Tensor& targets) const override;
  Tensor logits(RankContext& ctx, const Tensor& x, Param& head) const override;

 private:
  VocabPart vocab_shard(int64_t vocab) const;
  static void backward_of_enter(BackwardPass& pass);
  static void backward_of_leave(BackwardPass& pass);

  Communicator& comm_;
  int64_t chunk_rows_;
  Tensor one_;  // [1]: a constant of the loss's rows
};

}  // namespace kiln
