// Stage 2 of ZeRO is there to take less memory than stage 1: at no size, number of ranks or precision may its
// peak be above.
#include <gtest/gtest.h>

#include "dist/strategy/strategies.h"
#include "model/size_registry.h"
#include "train/memory_prediction.h"
#include "train/step.h"

namespace kiln {
namespace {

struct ZeroRun {
  ModelConfig model;
  int64_t context = 32;
  int ranks = 2, micro_steps = 1;
  Precision precision = Precision::fp32;
  StrategyOptions sharing = {};
};

std::size_t peak_of(const ZeroRun& run, const char* strategy) {
  MemoryRequest request;
  request.model = run.model;
  request.step.batch = 1;
  request.step.context = run.context;
  request.step.micro_steps = run.micro_steps;
  request.layout = layout_for(run.precision, request.step, run.ranks, false);
  request.layout.sharded_grads = std::string_view(strategy) == "zero2" && run.ranks > 1;
  request.strategy = strategy;
  request.sharing = run.sharing;
  RankOptions rank;
  rank.world = run.ranks;
  return predict_memory(request, rank).peak_total;
}

void expect_no_more_than_stage_1(const ZeroRun& run, const std::string& what) {
  const std::size_t first = peak_of(run, "zero1"), second = peak_of(run, "zero2");
  EXPECT_LE(second, first) << what << ", ctx " << run.context << ", " << run.ranks << " ranks, "
                           << name_of(run.precision) << ", " << run.micro_steps << " micro-steps";
}

TEST(ZeroMemory, Stage2PeaksNoHigherThanStage1AtAnyNamedSize) {
  int sizes = 0;
  for (const ModelSize& size : model_sizes()) {
    if (size.kind == SizeKind::ffn_only) continue;
    ++sizes;
    for (const int ranks : {1, 2, 4, 8}) {
      for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        for (const int micro_steps : {1, 3})
          expect_no_more_than_stage_1({config_of(size), 32, ranks, micro_steps, precision},
                                      std::string(size.name));
      }
    }
  }
  EXPECT_GT(sizes, 5);
}

// A model of one bucket, and buckets that were asked to be larger than the model.
TEST(ZeroMemory, BucketsAreNoLargerThanTheModel) {
  ZeroRun run{config_of(find_model_size("nano"))};
  for (const int ranks : {2, 4}) {
    run.ranks = ranks;
    run.sharing.bucket_mb = 1e6;
    const std::size_t wide = peak_of(run, "zero2");
    expect_no_more_than_stage_1(run, "nano");
    run.sharing.bucket_mb = 25;
    EXPECT_EQ(peak_of(run, "zero2"), wide);
  }
}

// Two tensors that are nearly all of the model: each is most of what stage 2 may hold.
TEST(ZeroMemory, AHeadAndAnEmbeddingAreNotHeldTogether) {
  ZeroRun run{config_of(find_model_size("nano"))};
  run.model.vocab = 50'000;
  run.context = 8;
  for (const int ranks : {2, 4}) {
    run.ranks = ranks;
    expect_no_more_than_stage_1(run, "nano of 50000 tokens");
  }
}

}  // namespace
}  // namespace kiln
