// ZeRO: every rank has the whole model, and updates 1/world of every parameter: only that part has moments
// (stage 1), and low halves of split weights. Gradients are reduced into the part of the rank that needs
// them, and the new values are gathered from all. Stage 2 keeps no more of the gradients than its part
// either: backward writes into a bucket's memory, which is freed once the bucket has been sent.
//
//                  gradients                        after the update
//   stage 1        reduce-scatter, last micro-step  all-gather of values
//   stage 2        reduce-scatter, every one        all-gather of values
//
// What stage 2 holds beside its part, gradients that backward writes and copies in flight, must take no more
// than the part saves: by name (strategies.cpp) its buckets are at most an eighth of the model, and where the
// next one would not fit backward waits for one in flight. Without either, models of a few buckets took more
// memory in stage 2 than in stage 1. One tensor of more than the saving itself, a tied embedding that is most
// of a model, cannot be helped: it is summed whole. On one rank nothing is saved, and stage 2 is stage 1.
//
// A bucket of several parameters is laid out rank by rank ([world, share of each]), so that one
// collective serves them all; a single one is sent and received in place, without a copy:
// xl25's step on one rank of an H200, where nothing hides copies, was 54.4 ms with them and is 46.0 now; 43.0
// without ZeRO.
//
// Of split weights only the high halves are gathered. Forward reads nothing else, and the low half of an
// element is read and written by the one rank that updates it; the exact weights are (high, low) of each
// rank's part, and a save gathers the low halves too.
#pragma once

#include "dist/strategy/bucketed.h"

namespace kiln {

class ZeroStrategy final : public BucketedStrategy {
 public:
  ZeroStrategy(RankContext& ctx, Communicator& comm, int stage, BucketOptions options = {})
      : ZeroStrategy(ctx, comm, options, comm.world() == 1 ? 1 : stage) {}

  bool shards_grads() const override { return stage_ == 2; }
  void attach(ParamStore& params) override;
  void begin_step() override;
  void grad_begin(Param& p) override;
  std::vector<ParamSpan> spans(const ParamStore& params, SpanUnit unit) const override;
  void after_update() override;

 protected:
  void start(Bucket& b) override;
  void finish_bucket(Bucket& b) override;
  void launched() override;

 private:
  ZeroStrategy(RankContext& ctx, Communicator& comm, BucketOptions options, int stage)
      : BucketedStrategy(ctx, comm, for_stage(stage, options)), stage_(stage) {}
  static BucketOptions for_stage(int stage, BucketOptions o) {
    o.every_micro_step = stage == 2;
    return o;
  }
  // Memory beside the gradients' own, counted.
  Tensor hold(const Shape& shape, DType dtype);
  void drop(Tensor& t);
  void make_room(int64_t bytes);
  Tensor whole_grad(const Bucket& b, const Param& p, int64_t at) const;
  Tensor own(const Tensor& flat, const Param& p) const {
    return params_->piece(flat, p, comm_.rank(), comm_.world());
  }
  // This rank's parts of a bucket as one piece of a flat buffer, and those of all ranks, rank by rank.
  // Undefined where they do not lie like that: then they are gathered by copies.
  Tensor own_part(const Tensor& flat, const Bucket& b) const;
  Tensor all_parts(const Tensor& flat, const Bucket& b) const;
  Tensor by_rank(const Bucket& b, DType wire);  // a copy of all gradients that does
  void start_gather(Bucket& b);
  void finish_gather(Bucket& b);

  int stage_;
  int64_t held_ = 0;  // bytes that hold() gave and drop() has not had back
  int64_t room_ = 0;  // of stage 2: what its part of the gradients saves
};

}  // namespace kiln
