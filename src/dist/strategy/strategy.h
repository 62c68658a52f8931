// How the ranks of a run share parameters and gradients. A strategy attaches through the parameters' hooks
// and a few calls of the step; the model knows nothing of it. This one is the plain single process.
#pragma once

#include <string_view>
#include <vector>

#include "autograd/param_store.h"
#include "ops/step_scalars/step_scalars.h"

namespace kiln {

// What a rank handed to collectives in one step: bytes of whole tensors, by kind. Loss and norm are not
// counted.
struct CommVolume {
  std::size_t all_reduce = 0, reduce_scatter = 0, all_gather = 0, broadcast = 0;
  // Bytes each rank sends where the library moves no more than it must (rings): an all-reduce is a
  // reduce-scatter and an all-gather.
  double sent_per_rank(int world) const {
    const double pass = static_cast<double>(2 * all_reduce + reduce_scatter + all_gather + broadcast);
    return pass * (world - 1) / world;
  }
};

class Strategy : public ParamHooks {
 public:
  virtual bool shards_params() const { return false; }
  virtual bool shards_grads() const { return shards_params(); }
  // Called once, after the parameters have their storage. Every rank has rank 0's weights after it.
  virtual void attach(ParamStore&) {}
  virtual void refresh() {}  // Param::trainable of some has changed since
  virtual void begin_step() {}
  virtual void begin_micro_step(bool /*last*/) {}  // gradients are reduced on the last one
  virtual void end_micro_step() {}
  virtual void finish_gradients() {}  // all gradients of the step are complete when this returns

  // What this rank's optimizer updates, in whole parameters where that is what it needs: a strategy that cuts
  // them refuses then. And the ranges whose squares it adds to the norm.
  virtual std::vector<ParamSpan> spans(const ParamStore& params, SpanUnit unit = SpanUnit::elements) const {
    (void)unit;
    return params.spans();
  }
  virtual std::vector<Tensor> own_grads(const ParamStore& params) const { return {params.grads()}; }
  // Each of these fp64 numbers becomes its sum over the ranks that split the batch.
  virtual void sum_over_ranks(const Tensor& /*numbers*/, std::string_view /*what*/) {}
  // Makes loss and sum of squares those of the whole run, so that every rank finds the same step finite.
  virtual void reduce_scalars(const Tensor& scalars) {
    sum_over_ranks(loss_and_squares(scalars), "loss and squares");
  }
  // In which order sums over ranks and over micro-steps are made; decides who gets which part of the batch
  // where that must not change the bits (grad_tree.h).
  virtual bool sums_ranks_first() const { return false; }
  virtual void after_update() {}  // what other ranks have updated comes back

  virtual CommVolume volume() const { return {}; }  // of the last step
  // Collectives that run on the host cannot be replayed by the device alone.
  virtual bool can_capture() const { return true; }
};

// What a strategy whose ranks have a cut of each parameter says to an optimizer that cannot have that.
[[noreturn]] inline void refuse_whole_matrices(std::string_view strategy) {
  throw Error(cat("the optimizer updates whole matrices, and --strategy ", strategy,
                  " leaves each rank a cut of every one"),
              "ddp keeps them whole on all ranks, zero1:simple gives each to one rank whole",
              ErrorKind::usage);
}

}  // namespace kiln
