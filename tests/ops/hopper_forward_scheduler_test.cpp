// How flash_hopper's forward assigns its tiles to CTAs, played through on the host: each tile once, the
// work even, and keys read by several blocks at a time.
#include "ops/attention/hopper/forward_tile_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace kiln::hopper {
namespace {

constexpr int kQueries = 128, kKeys = 128, kBlocks = 132;
using Tile = WorkTile<kQueries, kKeys>;

struct Assignment {
  std::map<std::pair<int, int>, std::multiset<int>> first;  // head of the batch -> first queries of its tiles
  std::vector<int64_t> work;                                // of each block: tiles of keys
  std::size_t most_heads = 0;                               // in one round
};

Assignment assign_tiles(const AttentionProblem& p) {
  const SeqlenInfo z(p);
  const ForwardTileScheduler scheduler(p, kQueries, kBlocks);
  Assignment got;
  got.work.resize(kBlocks);
  for (int r = 0; r * kBlocks < scheduler.count(); ++r) {
    std::set<std::pair<int, int>> heads;
    for (int block = 0; block < kBlocks; ++block) {
      const int number = serpentine_index(block, kBlocks, r);
      if (number >= scheduler.count()) continue;
      const Tile tile(z, scheduler, number);
      got.first[{tile.b, tile.h}].insert(tile.first);
      got.work[static_cast<std::size_t>(block)] += tile.steps;
      heads.insert({tile.b, tile.hkv});
      EXPECT_EQ(tile.hkv, tile.h / z.group);
    }
    got.most_heads = std::max(got.most_heads, heads.size());
  }
  return got;
}

AttentionProblem problem(int64_t B, int64_t H, int64_t Hkv, int64_t T, int64_t D, bool causal) {
  return {B, T, T, H, Hkv, D, DType::bf16, 1, causal};
}

TEST(HopperForwardScheduler, EachTileIsAssignedOnce) {
  for (const auto& p : {problem(3, 7, 7, 700, 64, true), problem(16, 16, 16, 1024, 128, true),
                        problem(1, 1, 1, 1, 64, true), problem(2, 100, 25, 129, 80, false)}) {
    const Assignment got = assign_tiles(p);
    ASSERT_EQ(got.first.size(), static_cast<std::size_t>(p.B * p.H));
    for (const auto& [head, first] : got.first) {
      ASSERT_EQ(first.size(), static_cast<std::size_t>((p.Tq + kQueries - 1) / kQueries));
      int expected = 0;
      for (const int i : first) {
        EXPECT_EQ(i, expected);
        expected += kQueries;
      }
    }
  }
}

TEST(HopperForwardScheduler, LongAndShortOnesAddUpToTheSame) {
  for (const auto& p : {problem(16, 16, 16, 1024, 128, true), problem(4, 16, 16, 4096, 128, true),
                        problem(32, 12, 12, 1024, 64, true), problem(16, 32, 32, 1024, 64, true)}) {
    const Assignment got = assign_tiles(p);
    int64_t all = 0;
    for (const int64_t work : got.work) all += work;
    const int64_t most = *std::max_element(got.work.begin(), got.work.end());
    EXPECT_LT(static_cast<double>(most) * kBlocks, 1.05 * static_cast<double>(all)) << p.Tq << " x " << p.D;
  }
}

// More heads at a time would read more from memory than it gives; keys that all fit in the cache may be read
// anyhow.
TEST(HopperForwardScheduler, CtasShareKeys) {
  EXPECT_LE(assign_tiles(problem(16, 16, 16, 1024, 128, false)).most_heads, 34u);
  EXPECT_LE(assign_tiles(problem(16, 16, 16, 1024, 128, true)).most_heads, 66u);  // a round over two groups
  EXPECT_EQ(assign_tiles(problem(4, 12, 12, 512, 64, true)).most_heads, 48u);
}

TEST(HopperForwardScheduler, QueriesThatSeeNothingHaveAStepToo) {
  AttentionProblem p = problem(1, 1, 1, 400, 64, true);
  p.Tk = 100;  // the first 300 queries see nothing
  const SeqlenInfo z(p);
  const ForwardTileScheduler scheduler(p, kQueries, kBlocks);
  for (int number = 0; number < scheduler.count(); ++number) {
    const Tile tile(z, scheduler, number);
    EXPECT_EQ(tile.steps, 1);
    EXPECT_EQ(tile.whole, 0);
  }
}

}  // namespace
}  // namespace kiln::hopper
