// The same run again, and with other numbers of threads: the same bits in every step (R12).
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "train/trainer.h"

namespace kiln {
namespace {

constexpr int kSteps = 100;

std::vector<uint32_t> hashes_of_steps(int threads) {
  TinyRun run;
  run.steps = kSteps;
  RankOptions options;
  options.threads = threads;
  options.seed = 11;
  RankContext ctx(options);
  Llama model(run.model);
  model.params().materialize(ctx, {run.precision, false});
  Strategy plain;
  TrainStep step(ctx, model, plain, run.step);
  std::vector<uint32_t> hashes;
  for (int s = 0; s < kSteps; ++s) {
    std::vector<TinyBatch> batches;
    std::vector<HostBatch> views;
    for (int i = 0; i < run.step.micro_steps; ++i)
      batches.push_back(tiny_batch(run, s * run.step.micro_steps + i));
    for (const TinyBatch& b : batches) views.push_back(b.host());
    step.run(views, run.lr);
    (void)step.finish();
    hashes.push_back(crc32c(fetch_bytes(ctx, model.params().values())));
  }
  ctx.tape().reset();
  return hashes;
}

TEST(Repeat, FiveRunsOf100StepsOn124ThreadsHaveTheSameBits) {
  const std::vector<uint32_t> first = hashes_of_steps(1);
  EXPECT_NE(first.front(), first.back()) << "nothing was trained";
  int runs = 1;
  for (const int threads : {1, 2, 4}) {
    for (int i = threads == 1 ? 1 : 0; i < 5; ++i, ++runs) EXPECT_EQ(hashes_of_steps(threads), first);
  }
  RecordProperty("figure", cat(runs, " runs x ", kSteps, " steps"));
}

}  // namespace
}  // namespace kiln
