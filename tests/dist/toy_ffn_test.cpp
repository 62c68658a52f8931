// The feed-forward layer cut over ranks: forward and backward are the equations, with tensor parallelism
// alone and on a mesh where the weights are fully sharded over the other dimension.
#include "support/toy_ffn.h"

#include <gtest/gtest.h>

#include "autograd/host_floats.h"
#include "dist/launch/parallel_rank.h"
#include "support/comm_values.h"
#include "support/shuffled_ranks.h"
#include "support/whole_weights.h"

namespace kiln {
namespace {

Matrix normals(const char* name, int64_t count) {
  const PhiloxKey key = philox_key(4, name);
  Matrix v;
  for (int64_t i = 0; i < count; ++i) v.push_back(philox_normal(key, static_cast<uint64_t>(i)));
  return v;
}

Matrix doubles(RankContext& ctx, const Tensor& t) {
  std::vector<float> v(static_cast<std::size_t>(t.numel()));
  download_floats(ctx, t, v);
  return {v.begin(), v.end()};
}

double apart(const Matrix& a, const Matrix& b) {
  double square = 0, far = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    square += b[i] * b[i];
    far += (a.at(i) - b[i]) * (a.at(i) - b[i]);
  }
  return std::sqrt(far / square);
}

struct Case {
  int data, tensor;
  const char* strategy;
};

class FfnOnRanks : public testing::TestWithParam<Case> {};

TEST_P(FfnOnRanks, IsTheEquations) {
  const auto [data, tensor, strategy] = GetParam();
  constexpr int64_t B = ToyFfn::kRows, D = ToyFfn::kD;
  const Matrix x = normals("x", B * D), dy = normals("dy", B * D);
  WholeWeights wanted_values, wanted_grads;
  std::optional<FfnEquations> wanted;
  {
    RankOptions o = one_thread_each();
    RankContext ctx(o);
    ToyFfn whole(ctx, whole_model(), {});
    wanted.emplace(x, dy, doubles(ctx, whole.w1->value), doubles(ctx, whole.w2->value),
                   doubles(ctx, whole.w3->value));
    wanted_values.take(ctx, whole.store, whole.store.values());
    upload_floats(ctx, whole.w1->grad, std::vector<float>(wanted->dw1.begin(), wanted->dw1.end()));
    upload_floats(ctx, whole.w2->grad, std::vector<float>(wanted->dw2.begin(), wanted->dw2.end()));
    upload_floats(ctx, whole.w3->grad, std::vector<float>(wanted->dw3.begin(), wanted->dw3.end()));
    wanted_grads.take(ctx, whole.store, whole.store.grads());
  }
  for (int round = 0; round < kShuffles; ++round) {
    WholeWeights values, grads;
    run_thread_ranks(data * tensor, one_thread_each(), [&](RankContext& ctx, Communicator& all) {
      Shaker shake(round, ctx.rank());
      ParallelRank place(ctx, all, tensor, strategy);
      Strategy& s = place.strategy();
      ToyFfn ffn(ctx, place.partition(),
                 {.sharded = s.shards_params(),
                  .sharded_grads = s.shards_grads() && !s.shards_params(),
                  .tensor_ranks = tensor});
      s.attach(ffn.store);
      values.take(ctx, ffn.store, ffn.store.values());
      // The rows of this rank's part of the batch; the same on all ranks that hold one model.
      const int64_t rows = B / data, first = rows * place.data().rank() * D;
      const auto mine = [&](const Matrix& m) {
        return std::vector<float>(m.begin() + first, m.begin() + first + rows * D);
      };
      const Tensor in = ctx.empty({rows, D}, DType::f32), grad = ctx.empty({rows, D}, DType::f32);
      ctx.upload(in, mine(x).data());
      ctx.upload(grad, mine(dy).data());
      for (int step = 0; step < 2; ++step) {  // the second finds what the first left
        shake();
        ffn.store.begin_step();
        s.begin_step();
        s.begin_micro_step(true);
        ctx.tape().reset();
        const Tensor leaf = ctx.tape().watch(in);
        const Tensor y = ffn.forward(ctx, leaf);
        shake();
        const Matrix got = doubles(ctx, y);
        EXPECT_LT(apart(got, {wanted->y.begin() + first, wanted->y.begin() + first + rows * D}), 1e-6);
        ctx.tape().backward(y, ctx.clone(grad));
        EXPECT_LT(apart(doubles(ctx, ctx.tape().grad(leaf)),
                        {wanted->dx.begin() + first, wanted->dx.begin() + first + rows * D}),
                  1e-6);
        ctx.tape().reset();
        ffn.store.finish_gradients(ctx);
        s.finish_gradients();
      }
      grads.take(ctx, ffn.store, ffn.store.grads());
    });
    EXPECT_TRUE(values == wanted_values);  // to the bit: each rank draws its part of the same weight
    EXPECT_TRUE(grads.complete());
    EXPECT_LT(distance(grads, wanted_grads), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, FfnOnRanks,
                         testing::Values(Case{1, 1, "none"}, Case{1, 2, "none"}, Case{1, 4, "none"},
                                         Case{2, 1, "fsdp"}, Case{2, 2, "fsdp"}, Case{3, 2, "fsdp"},
                                         Case{2, 4, "fsdp"}, Case{2, 2, "ddp:bucketed"}, Case{2, 2, "zero2"}),
                         [](const auto& c) {
                           std::string name = cat(c.param.strategy, "_", c.param.data, "x", c.param.tensor);
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

}  // namespace
}  // namespace kiln
