#include "train/run/train_loop.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/byte_tokenizer.h"
#include "train/trainer.h"

namespace kiln {
namespace {

// A text with a rule in it, so that something can be learned: each token follows from the one before.
std::shared_ptr<const TokenSet> ruled_tokens(ThreadPool& pool, int64_t count, int32_t vocab) {
  std::vector<int32_t> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 1; i < ids.size(); ++i) ids[i] = (ids[i - 1] * 5 + 3) % vocab;
  std::vector<TokenShard> shards;
  shards.emplace_back(std::move(ids), "ruled");
  return std::make_shared<TokenSet>(std::move(shards), vocab, pool);
}

struct Record final : RunListener {
  std::vector<StepReport> steps;
  std::vector<std::pair<int64_t, Evaluation>> evaluations;
  std::atomic<bool>* stop = nullptr;
  int64_t stop_after = 0;
  void on_step(const StepReport& r) override {
    steps.push_back(r);
    if (stop != nullptr && r.step == stop_after) *stop = true;
  }
  void on_evaluation(int64_t step, const Evaluation& e) override { evaluations.emplace_back(step, e); }
};

struct Bench {
  explicit Bench(const RunOptions& o, bool validate = true)
      : trainer(TinyRun()),
        tokens(ruled_tokens(trainer.ctx.pool(), 600, static_cast<int32_t>(trainer.run.model.vocab))),
        loader(tokens, {.batch = trainer.run.step.batch,
                        .context = trainer.run.step.context,
                        .micro_steps = trainer.run.step.micro_steps,
                        .prefetch = false}),
        run(trainer.ctx, trainer.model, *trainer.step, trainer.run.step, loader,
            validate ? tokens : std::shared_ptr<const TokenSet>(), o) {}
  Trainer trainer;
  std::shared_ptr<const TokenSet> tokens;
  BatchLoader loader;
  TrainLoop run;
};

RunOptions options(int64_t steps) {
  RunOptions o;
  o.steps = steps;
  o.lr = {1e-2, 1e-3, 2, steps};
  o.eval_batches = 2;
  return o;
}

TEST(TrainLoop, ReportsEveryStepOnceInOrderWithItsLearningRate) {
  RunOptions o = options(7);
  o.eval_every = 3;
  Bench b(o);
  Record record;
  const std::atomic<bool> stop{false};
  EXPECT_EQ(b.run.run(record, stop), 7);
  ASSERT_EQ(record.steps.size(), 7u);
  for (int64_t s = 1; s <= 7; ++s) {
    EXPECT_EQ(record.steps[s - 1].step, s);
    EXPECT_DOUBLE_EQ(record.steps[s - 1].lr, o.lr.at(s));
    EXPECT_TRUE(std::isfinite(record.steps[s - 1].loss));
    EXPECT_GT(record.steps[s - 1].grad_norm, 0);
  }
  ASSERT_EQ(record.evaluations.size(), 3u);
  EXPECT_EQ(record.evaluations[0].first, 3);
  EXPECT_EQ(record.evaluations[1].first, 6);
  EXPECT_EQ(record.evaluations[2].first, 7);
}

TEST(TrainLoop, AnEvaluationChangesNothing) {
  RunOptions often = options(6), never = options(6);
  often.eval_every = 1;
  Bench a(often), b(never, false);
  Record ra, rb;
  const std::atomic<bool> stop{false};
  a.run.run(ra, stop);
  b.run.run(rb, stop);
  EXPECT_EQ(a.trainer.weights(), b.trainer.weights());
  EXPECT_EQ(ra.evaluations.size(), 6u);
  EXPECT_TRUE(rb.evaluations.empty());
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(ra.steps[i].loss, rb.steps[i].loss) << i;
}

TEST(TrainLoop, OverfitsOneBatch) {
  RunOptions o = options(60);
  o.overfit_one_batch = true;
  Bench b(o, false);
  Record record;
  const std::atomic<bool> stop{false};
  b.run.run(record, stop);
  EXPECT_LT(record.steps.back().loss, 0.5 * record.steps.front().loss);
  EXPECT_EQ(b.loader.state().next, b.loader.windows_per_step()) << "more than one step's windows were taken";
}

TEST(TrainLoop, StopsAfterTheStepThatIsUnderWayAndReportsIt) {
  Bench b(options(50));
  std::atomic<bool> stop{false};
  Record record;
  record.stop = &stop;
  record.stop_after = 4;  // reported while step 5 is already queued
  EXPECT_EQ(b.run.run(record, stop), 5);
  ASSERT_EQ(record.steps.size(), 5u);
  EXPECT_EQ(record.steps.back().step, 5);
}

TEST(Evaluate, IsTheMeanLossOfTheFirstBatchesAndTakesNoMoreThanThereAre) {
  Trainer t{TinyRun()};
  const auto tokens = ruled_tokens(t.ctx.pool(), 600, static_cast<int32_t>(t.run.model.vocab));
  const int64_t B = t.run.step.batch, T = t.run.step.context;
  const Evaluation one = evaluate(t.ctx, t.model, tokens, B, T, 1);
  EXPECT_EQ(one.tokens, B * T);
  EXPECT_NEAR(one.loss, std::log(static_cast<double>(t.run.model.vocab)), 2.0);
  const Evaluation again = evaluate(t.ctx, t.model, tokens, B, T, 1);
  EXPECT_EQ(one.loss, again.loss);
  const Evaluation all = evaluate(t.ctx, t.model, tokens, B, T, 1'000'000);
  EXPECT_EQ(all.tokens, 599 / T / B * B * T);
  EXPECT_EQ(t.ctx.tape().size(), 0) << "evaluation recorded something";
}

TEST(Evaluate, AllOfATextIsEveryWindowWhateverTheBatch) {
  Trainer t{TinyRun()};
  const auto tokens = ruled_tokens(t.ctx.pool(), 100, static_cast<int32_t>(t.run.model.vocab));
  const auto bytes = make_byte_tokenizer();
  constexpr int64_t T = 11, kWindows = 9;  // (100 - 1) / 11
  std::vector<int64_t> told;
  const Evaluation one = evaluate(t.ctx, t.model, tokens, 1, T, kAllBatches);
  const Evaluation four =
      evaluate(t.ctx, t.model, tokens, 4, T, kAllBatches,
               {bytes.get(), [&](int64_t done, int64_t all) { told.push_back(done * 100 + all); }});
  const Evaluation many = evaluate(t.ctx, t.model, tokens, 20, T, kAllBatches);
  EXPECT_EQ(told, (std::vector<int64_t>{409, 809, 909}));
  for (const Evaluation& e : {one, four, many}) {
    EXPECT_EQ(e.tokens, kWindows * T);
    EXPECT_NEAR(e.loss, one.loss, 1e-5);
  }
  EXPECT_EQ(one.bytes, 0);
  EXPECT_EQ(one.bits_per_byte(), 0);
  EXPECT_EQ(four.bytes, kWindows * T);  // a byte a token
  EXPECT_NEAR(four.bits_per_byte(), four.loss / std::log(2.0), 1e-12);
  EXPECT_NEAR(four.perplexity(), std::exp(four.loss), 1e-12);
}

TEST(Evaluate, RefusesTextShorterThanABatch) {
  Trainer t{TinyRun()};
  const auto tokens = ruled_tokens(t.ctx.pool(), t.run.step.context, static_cast<int32_t>(t.run.model.vocab));
  EXPECT_THROW(evaluate(t.ctx, t.model, tokens, t.run.step.batch, t.run.step.context, 1), Error);
}

}  // namespace
}  // namespace kiln
