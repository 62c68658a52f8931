// The parts of a tensor-parallel model one by one, each against the same part of a single process: a block,
// the embedding, the loss; what a layer sends; what cannot be cut.
#include "dist/tensor/tensor_parallel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "autograd/host_floats.h"
#include "autograd/tape.h"
#include "dist/launch/parallel_rank.h"
#include "model/llama.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "support/shuffled_ranks.h"
#include "support/tiny_run.h"
#include "support/whole_weights.h"
#include "train/trainer.h"

namespace kiln {
namespace {

ModelConfig small_model() {
  ModelConfig c;
  c.vocab = 61;
  c.d_model = 32;
  c.d_ff = 20;
  c.layers = 2;
  c.heads = 8;
  c.kv_heads = 4;
  return c;
}

std::vector<float> normals(const char* name, int64_t count) {
  const PhiloxKey key = philox_key(9, name);
  std::vector<float> v;
  for (int64_t i = 0; i < count; ++i) v.push_back(philox_normal(key, static_cast<uint64_t>(i)));
  return v;
}

std::vector<float> floats(RankContext& ctx, const Tensor& t) {
  std::vector<float> v(static_cast<std::size_t>(t.numel()));
  download_floats(ctx, t, v);
  return v;
}

double apart(const std::vector<float>& a, const std::vector<float>& b) {
  double square = 0, far = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    square += static_cast<double>(b[i]) * b[i];
    far += std::pow(static_cast<double>(a.at(i)) - b[i], 2);
  }
  return std::sqrt(far / square);
}

double rounding(DType dtype) { return dtype == DType::f32 ? 2e-6 : 2e-2; }
Precision pure(DType dtype) { return dtype == DType::f32 ? Precision::fp32 : Precision::pure_bf16; }

// What one forward and backward of some piece gave.
struct Outcome {
  std::vector<float> y, dx;
  WholeWeights grads;
};

// A block on x, its gradient all normals too.
void run_block(RankContext& ctx, const Partition& partition, int tensor, DType dtype, bool fused,
               Outcome& out, bool first) {
  ModelConfig c = small_model();
  c.fused_qkv = c.fused_gate_up = fused;
  ParamStore params;
  const Block block(params, c, 0, partition);
  params.materialize(ctx, {.precision = pure(dtype), .tensor_ranks = tensor});
  const Shape shape{2, 7, c.d_model};
  const Tensor x = ctx.empty(shape, dtype), dy = ctx.empty(shape, dtype);
  upload_floats(ctx, x, normals("x", shape.numel()));
  upload_floats(ctx, dy, normals("dy", shape.numel()));
  params.begin_step();
  ctx.tape().reset();
  const Tensor leaf = ctx.tape().watch(x);
  const Tensor y = block.forward(ctx, {leaf}).whole(ctx);
  if (first) out.y = floats(ctx, y);
  ctx.tape().backward(y, dy);
  if (first) out.dx = floats(ctx, ctx.tape().grad(leaf));
  ctx.tape().reset();
  params.finish_gradients(ctx);
  out.grads.take(ctx, params, params.grads());
}

TEST(TensorParallelBlock, GivesWhatOneRankGives) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool fused : {true, false}) {
      Outcome alone;
      {
        RankContext ctx(one_thread_each());
        run_block(ctx, whole_model(), 1, dtype, fused, alone, true);
      }
      for (const int world : {2, 4}) {
        for (int round = 0; round < kShuffles; ++round) {
          Outcome out;
          run_thread_ranks(world, one_thread_each(), [&](RankContext& ctx, Communicator& comm) {
            Shaker shake(round, ctx.rank());
            shake();
            const TensorParallel parts(ctx, comm);
            run_block(ctx, parts, world, dtype, fused, out, ctx.rank() == 0);
          });
          EXPECT_LT(apart(out.y, alone.y), rounding(dtype));
          EXPECT_LT(apart(out.dx, alone.dx), rounding(dtype));
          EXPECT_TRUE(out.grads.complete());
          EXPECT_EQ(out.grads.count(), 9u);
          EXPECT_LT(distance(out.grads, alone.grads), rounding(dtype));
        }
      }
    }
  }
}

// A vocabulary of any size: tokens of all ranks, some often, and one that no rank has.
TEST(TensorParallelEmbedding, RowsOfOtherRanksAreAddedAndKnowNoGradient) {
  constexpr int64_t kVocab = 61, kC = 5, kTokens = 40;
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kTokens; ++i) ids.push_back(static_cast<int32_t>(i * i % kVocab));
  const auto run = [&](RankContext& ctx, const Partition& p, int tensor, Outcome& out) {
    ParamStore params;
    const ShardRange here = p.of_vocab(kVocab);
    Param& w = params.add("w", {here.count, kC}, {}, true, {ParamRole::vocab, {{here.begin, kVocab}}});
    params.materialize(ctx, {.tensor_ranks = tensor});
    const Tensor tokens = ctx.empty({kTokens}, DType::i32), dy = ctx.empty({kTokens, kC}, DType::f32);
    ctx.upload(tokens, ids.data());
    upload_floats(ctx, dy, normals("dy", kTokens * kC));
    params.begin_step();
    ctx.tape().reset();
    const Tensor y = p.embed(ctx, tokens, w, kVocab);
    if (ctx.rank() == 0) out.y = floats(ctx, y);
    ctx.tape().backward(y, dy);
    ctx.tape().reset();
    params.finish_gradients(ctx);
    out.grads.take(ctx, params, params.grads());
  };
  Outcome alone;
  {
    RankContext ctx(one_thread_each());
    run(ctx, whole_model(), 1, alone);
  }
  for (const int world : {2, 3, 4}) {
    for (int round = 0; round < kShuffles; ++round) {
      Outcome out;
      run_thread_ranks(world, one_thread_each(), [&](RankContext& ctx, Communicator& comm) {
        Shaker(round, ctx.rank())();
        run(ctx, TensorParallel(ctx, comm), world, out);
      });
      EXPECT_EQ(out.y, alone.y);  // nothing is rounded: all summands but one are 0
      EXPECT_TRUE(out.grads == alone.grads);
    }
  }
  ids[7] = kVocab;
  Outcome bad;
  run_thread_ranks(2, one_thread_each(), [&](RankContext& ctx, Communicator& comm) {
    run(ctx, TensorParallel(ctx, comm), 2, bad);
  });
  for (int64_t i = 0; i < kTokens * kC; ++i)
    EXPECT_EQ(std::isnan(bad.y[static_cast<std::size_t>(i)]), i / kC == 7) << i;
}

// No rank may hold a row of logits whole.
struct NoWholeRows final : OpObserver {
  explicit NoWholeRows(int64_t n) : vocab(n) {}
  void on_op_end(RankContext&, const OpEvent& e) override {
    for (const NamedTensor& t : e.outputs) {
      if (t.tensor.defined() && t.tensor.shape().rank() == 2) widest = std::max(widest, t.tensor.dim(1));
    }
  }
  int64_t vocab, widest = 0;
};

struct LossCase {
  int64_t vocab = 61, chunk = 0;
  DType dtype = DType::f32;
  bool ignores = true;
};

void run_loss(RankContext& ctx, const Partition& p, int tensor, const LossCase& c, Outcome& out) {
  constexpr int64_t kC = 9, kRows = 23;
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kRows; ++i)
    ids.push_back(c.ignores && i % 5 == 3 ? kIgnoreTarget : static_cast<int32_t>((i * 17 + 2) % c.vocab));
  ParamStore params;
  const ShardRange here = p.of_vocab(c.vocab);
  const ParamInit init{ParamInit::Kind::normal, 0.7f, 3};
  Param& w = params.add("w", {here.count, kC}, init, true, {ParamRole::vocab, {{here.begin, c.vocab}}});
  params.materialize(ctx, {.precision = pure(c.dtype), .tensor_ranks = tensor});
  const Tensor targets = ctx.empty({kRows}, DType::i32), x = ctx.empty({kRows, kC}, c.dtype);
  ctx.upload(targets, ids.data());
  upload_floats(ctx, x, normals("x", kRows * kC));
  params.begin_step();
  ctx.tape().reset();
  {
    const GradModeGuard off(ctx, GradMode::off);
    EXPECT_FALSE(ctx.tape().needs_grad(p.loss(ctx, x, w, c.vocab, targets)));
  }
  const Tensor leaf = ctx.tape().watch(x);
  NoWholeRows rows(c.vocab);
  ctx.add_observer(&rows);
  const Tensor loss = p.loss(ctx, leaf, w, c.vocab, targets);
  ctx.remove_observer(&rows);
  if (tensor > 1) {
    EXPECT_EQ(rows.widest, std::max(here.count, kC));
  }
  const Tensor dloss = ctx.empty({1}, DType::f32);
  upload_floats(ctx, dloss, std::vector<float>{0.25f});
  const std::vector<float> mine = floats(ctx, loss);
  ctx.tape().backward(loss, dloss);
  const std::vector<float> dx = floats(ctx, ctx.tape().grad(leaf));
  ctx.tape().reset();
  params.finish_gradients(ctx);
  out.grads.take(ctx, params, params.grads());
  if (ctx.rank() > 0) return;
  out.y = mine;
  out.dx = dx;
}

TEST(TensorParallelLoss, IsThatOfTheWholeVocabulary) {
  for (const LossCase& c :
       {LossCase{}, LossCase{.vocab = 60, .chunk = 4}, LossCase{.vocab = 4, .chunk = 23},
        LossCase{.vocab = 391, .chunk = 1, .ignores = false}, LossCase{.chunk = 7, .dtype = DType::bf16}}) {
    SCOPED_TRACE(cat("vocabulary of ", c.vocab, ", ", c.chunk, " rows at a time, ", name_of(c.dtype)));
    Outcome alone;
    {
      RankContext ctx(one_thread_each());
      run_loss(ctx, whole_model(), 1, c, alone);
    }
    for (const int world : {2, 3, 4}) {
      for (int round = 0; round < kShuffles; ++round) {
        Outcome out;
        run_thread_ranks(world, one_thread_each(), [&](RankContext& ctx, Communicator& comm) {
          Shaker(round, ctx.rank())();
          const TensorParallel parts(ctx, comm, c.chunk);
          run_loss(ctx, parts, world, c, out);
        });
        EXPECT_NEAR(out.y[0], alone.y[0], rounding(c.dtype) * std::abs(alone.y[0]));
        EXPECT_LT(apart(out.dx, alone.dx), rounding(c.dtype));
        EXPECT_TRUE(out.grads.complete());
        EXPECT_LT(distance(out.grads, alone.grads), rounding(c.dtype));
      }
    }
  }
}

TEST(TensorParallelLoss, ATargetNobodyHasIsNaNAndNoTargetIsZero) {
  run_thread_ranks(2, one_thread_each(), [](RankContext& ctx, Communicator& comm) {
    const TensorParallel parts(ctx, comm);
    ParamStore params;
    Param& w = params.add("w", {parts.of_vocab(11).count, 3}, {}, true,
                          {ParamRole::vocab, {{parts.of_vocab(11).begin, 11}}});
    params.materialize(ctx, {.tensor_ranks = 2});
    const Tensor x = ctx.empty({2, 3}, DType::f32), targets = ctx.empty({2}, DType::i32);
    upload_floats(ctx, x, normals("x", 6));
    for (const auto& [ids, nan] : {std::pair(std::array<int32_t, 2>{3, 11}, true),
                                   {std::array<int32_t, 2>{-1, 2}, true},
                                   {std::array<int32_t, 2>{kIgnoreTarget, kIgnoreTarget}, false}}) {
      ctx.upload(targets, ids.data());
      params.begin_step();
      ctx.tape().reset();
      const Tensor leaf = ctx.tape().watch(x);
      const Tensor loss = parts.loss(ctx, leaf, w, 11, targets);
      EXPECT_EQ(std::isnan(floats(ctx, loss)[0]), nan);
      if (nan) continue;
      EXPECT_EQ(floats(ctx, loss)[0], 0);
      const Tensor dloss = ctx.empty({1}, DType::f32);
      upload_floats(ctx, dloss, std::vector<float>{1});
      ctx.tape().backward(loss, dloss);
      for (const float g : floats(ctx, ctx.tape().grad(leaf))) EXPECT_EQ(g, 0);
    }
    ctx.tape().reset();
  });
}

TEST(TensorParallelVocabulary, AnySizeIsCutWithoutGapsOrEmptyParts) {
  for (const int world : {1, 2, 3, 4, 7, 8}) {
    run_thread_ranks(world, one_thread_each(), [&](RankContext& ctx, Communicator& comm) {
      const TensorParallel parts(ctx, comm);
      for (const int64_t rows : {8, 61, 255, 256, 257, 449, 50257, 128256}) {
        int64_t next = 0;
        for (int i = 0; i < world; ++i) {
          const ShardRange r = parts.vocab_range(rows, i);
          EXPECT_EQ(r.begin, next);
          EXPECT_GE(r.count, 1);
          if (rows >= 64 * world) {
            EXPECT_EQ(r.begin % 64, 0);  // matmuls stay aligned
          }
          next = r.begin + r.count;
        }
        EXPECT_EQ(next, rows);
      }
    });
  }
}

// By subject: a layer's all-reduces of a step, and their bytes.
struct Sent {
  int calls = 0;
  int64_t bytes = 0;
};

TEST(TensorParallelVolume, ALayerSendsFourTimesItsActivations) {
  TinyRun run;
  run.model = small_model();
  const int64_t rows = run.step.batch * run.step.context, C = run.model.d_model;
  for (const auto& [precision, bytes] : {std::pair(Precision::fp32, 4), {Precision::bf16, 2}}) {
    for (const Recompute& keep : {Recompute::none, Recompute::block}) {
      run_thread_ranks(2, one_thread_each(), [&](RankContext& ctx, Communicator& all) {
        ParallelRank place(ctx, all, 2, "none");
        ModelConfig config = run.model;
        config.recompute = keep;
        Llama model(config, place.partition());
        model.params().materialize(ctx, {.precision = precision, .tensor_ranks = 2});
        TrainStep step(ctx, model, place.strategy(), run.step);
        place.tensor()->start_recording();
        const TinyBatch b = tiny_batch(run, 0);
        const HostBatch view = b.host();
        step.run({&view, 1}, run.lr);
        step.finish();
        std::map<std::string, Sent> sent;
        int others = 0;
        for (const CommRecord& r : place.tensor()->take_records(ctx)) {
          if (r.collective != Collective::all_reduce) {
            ++others;
            continue;
          }
          Sent& s = sent[r.subject.starts_with("layers.") ? r.subject.substr(0, 8) : r.subject];
          ++s.calls;
          s.bytes += r.bytes;
        }
        const int again = keep == Recompute::none ? 0 : 2;  // forward's two, a second time
        for (const char* layer : {"layers.0", "layers.1"}) {
          EXPECT_EQ(sent[layer].calls, 4 + again) << layer;
          EXPECT_EQ(sent[layer].bytes, (4 + again) * rows * C * bytes);
        }
        EXPECT_EQ(sent["embed_tokens"].bytes, rows * C * bytes);  // rows of the embedding
        EXPECT_EQ(sent["loss"].bytes, rows * C * bytes);          // dx of the head
        EXPECT_EQ(sent["loss and squares"].bytes, 16);
        EXPECT_EQ(others, 1);  // two numbers a row of logits
        EXPECT_EQ(sent.size(), 5u);
        ctx.tape().reset();
      });
    }
  }
}

TEST(TensorParallelRefusals, NameBothNumbers) {
  ModelConfig c = small_model();
  EXPECT_EQ(complaint([&] { check_shards(c, 3); }), "8 heads do not divide among 3 tensor-parallel ranks");
  EXPECT_EQ(complaint([&] { check_shards(c, 8); }),
            "4 key/value heads do not divide among 8 tensor-parallel ranks");
  c.d_ff = 22;
  EXPECT_EQ(complaint([&] { check_shards(c, 4); }),
            "22 hidden units (d_ff) do not divide among 4 tensor-parallel ranks");
  c.d_ff = 20;
  c.vocab = 3;
  EXPECT_EQ(complaint([&] { check_shards(c, 4); }),
            "a vocabulary of 3 has no row for each of 4 tensor-parallel ranks");
  EXPECT_NE(complaint([&] { check_shards(c, 0); }).find("into 0 shards"), std::string::npos);
  run_thread_ranks(3, one_thread_each(), [](RankContext& ctx, Communicator& all) {
    EXPECT_EQ(complaint([&] { ParallelRank(ctx, all, 2, "none"); }),
              "a mesh of 1 x 2 ranks does not hold the 3 of this run");
    Llama model(small_model());
    EXPECT_EQ(complaint([&] { model.params().materialize(ctx, {.tensor_ranks = 2}); }),
              "3 ranks do not divide into models of 2 ranks each");
  });
  run_thread_ranks(2, one_thread_each(), [](RankContext& ctx, Communicator& all) {
    const TensorParallel parts(ctx, all);
    Llama model(small_model(), parts);
    model.params().materialize(ctx, {.tensor_ranks = 2});
    const Tensor tokens = ctx.zeros({1, 3}, DType::i32);
    EXPECT_NE(complaint([&] { (void)model.logits(ctx, tokens); }).find("cut into 2 shards"),
              std::string::npos);
    KvCache cache(ctx, small_model(), DType::f32, 1, 4);
    EXPECT_NE(complaint([&] { model.decode(ctx, tokens, cache); }).find("does not generate"),
              std::string::npos);
    ctx.tape().reset();
  });
}

// A rank that fails inside forward: the others, which wait for its summand, end with it and name it.
TEST(TensorParallelFailure, ARankThatFailsEndsTheOthers) {
  const std::string said = complaint([] {
    run_thread_ranks(4, one_thread_each(), [](RankContext& ctx, Communicator& all) {
      ParallelRank place(ctx, all, 2, "ddp:bucketed");
      if (ctx.rank() == 2) throw Error("the lamp fell over");
      place.partition().leave_shards(ctx, ctx.zeros({4}, DType::f32));
      if (ctx.rank() < 2) all.barrier(ctx, "after");
    });
  });
  EXPECT_EQ(said, "the lamp fell over");
}

}  // namespace
}  // namespace kiln
