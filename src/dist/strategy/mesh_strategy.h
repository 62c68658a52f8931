// A strategy among ranks that have the same part of the model, in a run where tensor-parallel ranks hold the
// parts. Gradients of the parts are never exchanged between these: each has all of its own. What is left to
// do is the norm, in which a weight that all of them have counts once, and the loss, which they all have.
#pragma once

#include <memory>

#include "dist/comm/communicator.h"
#include "dist/strategy/strategy.h"

namespace kiln {

class MeshStrategy final : public Strategy {
 public:
  // `tensor`: the ranks that hold one model between them.
  MeshStrategy(RankContext& ctx, Communicator& tensor, std::unique_ptr<Strategy> along_data)
      : ctx_(ctx), tensor_(tensor), data_(std::move(along_data)) {}

  bool shards_params() const override { return data_->shards_params(); }
  bool shards_grads() const override { return data_->shards_grads(); }
  void attach(ParamStore& params) override { data_->attach(params); }  // its hooks, not these
  void refresh() override { data_->refresh(); }
  void begin_step() override { data_->begin_step(); }
  void begin_micro_step(bool last) override { data_->begin_micro_step(last); }
  void end_micro_step() override { data_->end_micro_step(); }
  void finish_gradients() override { data_->finish_gradients(); }
  std::vector<ParamSpan> spans(const ParamStore& params, SpanUnit unit) const override;
  std::vector<Tensor> own_grads(const ParamStore& params) const override;
  void sum_over_ranks(const Tensor& numbers, std::string_view what) override {
    data_->sum_over_ranks(numbers, what);
  }
  bool sums_ranks_first() const override { return data_->sums_ranks_first(); }
  void reduce_scalars(const Tensor& scalars) override;
  void after_update() override { data_->after_update(); }
  CommVolume volume() const override { return data_->volume(); }
  bool can_capture() const override { return false; }  // ranks communicate inside forward and backward

 private:
  RankContext& ctx_;
  Communicator& tensor_;
  std::unique_ptr<Strategy> data_;
};

}  // namespace kiln
