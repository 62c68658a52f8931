// Sums over chunks in the order of a binary tree, whichever of its levels are micro-steps and which are
// ranks.
#include "dist/strategy/grad_tree.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/comm_values.h"

namespace kiln {
namespace {

constexpr int64_t kCount = 37;

// What folding these chunks leaves; parameters come one by one, as backward completes them.
std::vector<float> folded(const std::vector<std::vector<float>>& chunks) {
  RankContext ctx;
  const Tensor grads = ctx.zeros({kCount}, DType::f32);
  GradTree tree(ctx, grads, static_cast<int>(chunks.size()));
  for (int step = 0; step < 2; ++step) {  // nothing of one step is left in the next
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      ctx.upload(grads, chunks[c].data());
      for (const auto& [at, n] : {std::pair<int64_t, int64_t>{20, 17}, {0, 20}})
        tree.fold(grads.narrow(0, at, n), static_cast<int>(c));
    }
  }
  std::vector<float> sum(kCount);
  ctx.download(sum.data(), grads);
  return sum;
}

std::vector<std::vector<float>> chunks_from(int first, int count) {
  std::vector<std::vector<float>> chunks;
  for (int c = first; c < first + count; ++c) chunks.push_back(values_of<float>(c, kCount));
  return chunks;
}

TEST(GradTree, AddsPairsThenPairsOfPairs) {
  for (const int chunks : {1, 2, 4, 8, 16})
    EXPECT_EQ(folded(chunks_from(0, chunks)), sum_of_ranks<float>(chunks, kCount)) << chunks;
}

TEST(GradTree, SubtreesOfRanksMakeTheTreeOfOne) {
  const std::vector<float> one = folded(chunks_from(0, 8));
  for (const int ranks : {2, 4, 8}) {
    std::vector<std::vector<float>> local_first, ranks_first;
    for (int r = 0; r < ranks; ++r) local_first.push_back(folded(chunks_from(r * 8 / ranks, 8 / ranks)));
    for (int m = 0; m < 8 / ranks; ++m) {
      const auto chunks = chunks_from(m * ranks, ranks);
      std::vector<float> sum;
      for (std::size_t i = 0; i < kCount; ++i) {
        std::vector<float> brought;
        for (const auto& c : chunks) brought.push_back(c[i]);
        sum.push_back(sum_pairwise(brought));
      }
      ranks_first.push_back(sum);
    }
    EXPECT_EQ(folded(local_first), one) << ranks;
    EXPECT_EQ(folded(ranks_first), one) << ranks;
  }
  // Another order has other bits, or this test would say nothing.
  std::vector<float> in_turn(kCount);
  for (const auto& c : chunks_from(0, 8)) {
    for (std::size_t i = 0; i < kCount; ++i) in_turn[i] += c[i];
  }
  EXPECT_NE(in_turn, one);
}

TEST(GradTree, KeepsOneBufferForEachLevel) {
  RankContext ctx;
  const Tensor grads = ctx.zeros({1024}, DType::f32);
  const std::size_t before = ctx.allocator().stats().live[Tag::grad];
  const GradTree tree(ctx, grads, 8);
  EXPECT_EQ(ctx.allocator().stats().live[Tag::grad] - before, 3 * 4096U);
}

TEST(GradTree, RefusesWhatHasNoTree) {
  RankContext ctx;
  const Tensor grads = ctx.zeros({8}, DType::f32);
  for (const int chunks : {0, 3, 6}) EXPECT_THROW(GradTree(ctx, grads, chunks), Error) << chunks;
  EXPECT_NO_THROW(check_chunks(8, 4));
  EXPECT_NO_THROW(check_chunks(1, 1));
  for (const auto& [chunks, ranks] : {std::pair{6, 1}, {8, 3}, {12, 3}, {4, 8}, {2, 4}})
    EXPECT_THROW(check_chunks(chunks, ranks), Error) << chunks << " on " << ranks;
}

}  // namespace
}  // namespace kiln
