// How flash_hopper's forward deals its parts to blocks, played through on the host: each part once, the work
// even, and keys read by several blocks at a time.
#include "ops/attention/cuda_hopper_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace kiln::hopper {
namespace {

constexpr int kQueries = 128, kKeys = 128, kBlocks = 132;
using Part = QueryPart<kQueries, kKeys>;

struct Dealt {
  std::map<std::pair<int, int>, std::multiset<int>>
      first;                   // head of the batch -> queries that parts begin with
  std::vector<int64_t> work;   // of each block: tiles of keys
  std::size_t most_heads = 0;  // in one round
};

Dealt deal(const AttentionProblem& p) {
  const Sizes z(p);
  const Parts parts(p, kQueries, kBlocks);
  Dealt dealt;
  dealt.work.resize(kBlocks);
  for (int r = 0; r * kBlocks < parts.count(); ++r) {
    std::set<std::pair<int, int>> heads;
    for (int block = 0; block < kBlocks; ++block) {
      const int number = part_number(block, kBlocks, r);
      if (number >= parts.count()) continue;
      const Part part(z, parts, number);
      dealt.first[{part.b, part.h}].insert(part.first);
      dealt.work[static_cast<std::size_t>(block)] += part.steps;
      heads.insert({part.b, part.hkv});
      EXPECT_EQ(part.hkv, part.h / z.group);
    }
    dealt.most_heads = std::max(dealt.most_heads, heads.size());
  }
  return dealt;
}

AttentionProblem problem(int64_t B, int64_t H, int64_t Hkv, int64_t T, int64_t D, bool causal) {
  return {B, T, T, H, Hkv, D, DType::bf16, 1, causal};
}

TEST(HopperParts, EachIsDealtOnce) {
  for (const auto& p : {problem(3, 7, 7, 700, 64, true), problem(16, 16, 16, 1024, 128, true),
                        problem(1, 1, 1, 1, 64, true), problem(2, 100, 25, 129, 80, false)}) {
    const Dealt dealt = deal(p);
    ASSERT_EQ(dealt.first.size(), static_cast<std::size_t>(p.B * p.H));
    for (const auto& [head, first] : dealt.first) {
      ASSERT_EQ(first.size(), static_cast<std::size_t>((p.Tq + kQueries - 1) / kQueries));
      int expected = 0;
      for (const int i : first) {
        EXPECT_EQ(i, expected);
        expected += kQueries;
      }
    }
  }
}

TEST(HopperParts, LongAndShortOnesAddUpToTheSame) {
  for (const auto& p : {problem(16, 16, 16, 1024, 128, true), problem(4, 16, 16, 4096, 128, true),
                        problem(32, 12, 12, 1024, 64, true), problem(16, 32, 32, 1024, 64, true)}) {
    const Dealt dealt = deal(p);
    int64_t all = 0;
    for (const int64_t work : dealt.work) all += work;
    const int64_t most = *std::max_element(dealt.work.begin(), dealt.work.end());
    EXPECT_LT(static_cast<double>(most) * kBlocks, 1.05 * static_cast<double>(all)) << p.Tq << " x " << p.D;
  }
}

// More heads at a time would read more from memory than it gives; keys that all fit in the cache may be read
// anyhow.
TEST(HopperParts, BlocksShareKeys) {
  EXPECT_LE(deal(problem(16, 16, 16, 1024, 128, false)).most_heads, 34u);
  EXPECT_LE(deal(problem(16, 16, 16, 1024, 128, true)).most_heads, 66u);  // a round over two groups
  EXPECT_EQ(deal(problem(4, 12, 12, 512, 64, true)).most_heads, 48u);
}

TEST(HopperParts, QueriesThatSeeNothingHaveAStepToo) {
  AttentionProblem p = problem(1, 1, 1, 400, 64, true);
  p.Tk = 100;  // the first 300 queries see nothing
  const Sizes z(p);
  const Parts parts(p, kQueries, kBlocks);
  for (int number = 0; number < parts.count(); ++number) {
    const Part part(z, parts, number);
    EXPECT_EQ(part.steps, 1);
    EXPECT_EQ(part.whole, 0);
  }
}

}  // namespace
}  // namespace kiln::hopper
