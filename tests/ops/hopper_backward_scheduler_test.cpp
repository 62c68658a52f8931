// The order in which flash_hopper's backward adds up dq, played through on the host: every pair of keys and
// queries that see each other is met once, every tile's semaphore counts to its end, and nobody waits for
// ever.
#include "ops/attention/hopper/backward_tile_scheduler.h"

#include "ops/attention/hopper/forward_tile_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace kiln::hopper {
namespace {

constexpr int kKeys = 128;

AttentionProblem problem(int64_t B, int64_t Tq, int64_t Tk, int64_t H, int64_t Hkv, bool causal) {
  return {B, Tq, Tk, H, Hkv, 64, DType::bf16, 1, causal};
}

struct Played {
  std::map<std::tuple<int, int, int>, std::multiset<int>> met;        // b, h, tile -> key blocks
  std::map<std::tuple<int, int, int>, std::vector<int>> early, late;  // dq_semaphore, in order of time
  std::map<std::tuple<int, int, int>, int> written;
  bool stuck = false;
  int waited = 0, rounds = 0;
};

// Every block makes a step at a time, if it is its turn; `at_once` blocks are there, in order of their
// numbers.
template <int kQueries>
Played play(const AttentionProblem& p, int at_once) {
  using KeyBlockT = KeyBlock<kKeys, kQueries>;
  const SeqlenInfo z(p);
  const BackwardTileScheduler l(p, kKeys, kQueries, at_once);
  struct Block {
    int number, s = 0, n = 0;
    QueryTileIterator<KeyBlockT> walk;
  };
  // What a CTA writes when it is done with a head: true once all contributions are there.
  const auto writes = [&](Played& played, const KeyBlockT& at) {
    if (!at.writes_dq_of_head(l)) return true;
    bool complete = true;
    for (int h = at.hkv * z.group; h < (at.hkv + 1) * z.group; ++h) {
      at.for_written_tiles(z, l, [&](int tile) {
        const std::tuple<int, int, int> key{at.b, h, tile};
        const DqCounts counts = KeyBlockT::written_counts(z, l, tile),
                       general = KeyBlockT::dq_counts(z, l, tile);
        EXPECT_EQ(counts.early, general.early);
        EXPECT_EQ(counts.late, general.late);
        complete = complete && static_cast<int>(played.early[key].size()) == counts.early &&
                   static_cast<int>(played.late[key].size()) == counts.late;
      });
    }
    if (!complete) return false;
    for (int h = at.hkv * z.group; h < (at.hkv + 1) * z.group; ++h)
      at.for_written_tiles(z, l, [&](int tile) { ++played.written[{at.b, h, tile}]; });
    return true;
  };
  Played played;
  std::vector<Block> running;
  int next = 0;
  const auto start = [&] {
    while (static_cast<int>(running.size()) < at_once && next < l.ctas()) {
      running.push_back({next, 0, 0, QueryTileIterator<KeyBlockT>(z, KeyBlockT(z, l, next, 0))});
      ++next;
    }
  };
  start();
  while (!running.empty() && !played.stuck) {
    ++played.rounds;
    bool moved = false;
    std::vector<Block> left;
    std::vector<std::tuple<std::tuple<int, int, int>, DqTurn>> added;
    for (Block block : running) {
      KeyBlockT at(z, l, block.number, block.s);
      bool waits = false;
      while (at.exists && block.n == at.steps(z)) {  // on to the next key block
        waits = !writes(played, at);
        if (waits) break;
        at = KeyBlockT(z, l, block.number, ++block.s);
        block.n = 0;
        block.walk = QueryTileIterator<KeyBlockT>(z, at);
        moved = true;
      }
      if (!at.exists) continue;
      if (waits) {
        ++played.waited;
        left.push_back(block);
        continue;
      }
      const std::tuple<int, int, int> tile{at.b, block.walk.h, block.walk.tile};
      const DqTurn turn = at.dq_turn(z, l, block.walk.tile);
      auto& done = turn.late ? played.late[tile] : played.early[tile];
      if (static_cast<int>(done.size()) == turn.turn) {
        played.met[tile].insert(at.j);
        added.emplace_back(tile, turn);
        ++block.n;
        block.walk.next(at);
        moved = true;
      } else {
        ++played.waited;
      }
      left.push_back(block);
    }
    for (const auto& [tile, turn] : added) {  // seen by the others a step later
      (turn.late ? played.late : played.early)[tile].push_back(turn.turn);
    }
    played.stuck = !moved;
    running = left;
    start();
  }
  return played;
}

// A turn met twice would be a flag that stops short on the GPU.
void expect_in_order(const std::map<std::tuple<int, int, int>, std::vector<int>>& turns,
                     const std::tuple<int, int, int>& tile) {
  const auto found = turns.find(tile);
  if (found == turns.end()) return;
  for (std::size_t i = 0; i < found->second.size(); ++i) EXPECT_EQ(found->second[i], static_cast<int>(i));
}

template <int kQueries>
void expect_complete(const AttentionProblem& p, int at_once) {
  SCOPED_TRACE(cat(p.B, " x ", p.Tq, " x ", p.Tk, ", heads ", p.H, "/", p.Hkv, p.causal ? " causal" : "",
                   ", tiles of ", kQueries, ", ", at_once, " blocks"));
  const Played played = play<kQueries>(p, at_once);
  ASSERT_FALSE(played.stuck);
  const int tiles = static_cast<int>((p.Tq + kQueries - 1) / kQueries);
  const bool by_blocks = BackwardTileScheduler(p, kKeys, kQueries, at_once).ctas_write_dq();
  for (int b = 0; b < p.B; ++b) {
    for (int h = 0; h < p.H; ++h) {
      for (int t = 0; t < tiles; ++t) {
        const int64_t last = std::min<int64_t>(p.Tq, (t + 1) * kQueries) - 1;
        std::multiset<int> seen;
        for (int j = 0; j * kKeys < p.visible(last); ++j) seen.insert(j);
        const std::tuple<int, int, int> tile{b, h, t};
        const auto met = played.met.find(tile);
        expect_in_order(played.early, tile);
        expect_in_order(played.late, tile);
        EXPECT_EQ(met == played.met.end() ? std::multiset<int>{} : met->second, seen) << "tile " << t;
        const auto written = played.written.find(tile);
        EXPECT_EQ(written == played.written.end() ? 0 : written->second, by_blocks ? 1 : 0) << "tile " << t;
      }
    }
  }
}

TEST(HopperBackwardScheduler, EveryTileIsMetOnceAndWrittenOnce) {
  for (const int64_t T : {1, 127, 128, 129, 300, 512, 700, 1024, 1100, 2900}) {
    for (const bool causal : {true, false}) {
      for (const int at_once : {1, 3, 4, 7, 132}) {
        expect_complete<128>(problem(2, T, T, 3, 3, causal), at_once);
        expect_complete<64>(problem(1, T, T, 4, 2, causal), at_once);
      }
    }
  }
}

TEST(HopperBackwardScheduler, UnequalLengths) {
  for (const bool causal : {true, false}) {
    for (const auto& [Tq, Tk] : {std::pair<int, int>{1, 700}, {700, 1}, {130, 900}, {900, 130}, {512, 640}}) {
      for (const int at_once : {1, 5, 132}) {
        expect_complete<128>(problem(1, Tq, Tk, 2, 1, causal), at_once);
        expect_complete<64>(problem(1, Tq, Tk, 2, 2, causal), at_once);
      }
    }
  }
}

// The point of the orders: a step apart, blocks that begin heads_at_once hardly wait.
TEST(HopperBackwardScheduler, BlocksComeByOneAfterTheOther) {
  for (const bool causal : {true, false}) {
    const AttentionProblem p = problem(1, 4096, 4096, 4, 4, causal);
    const Played played = play<128>(p, 132);
    const int steps = causal ? 4 * 32 * 33 / 2 : 4 * 32 * 32;
    EXPECT_LE(played.waited, steps / 10) << (causal ? "causal" : "full");
  }
}

// A head with far more key blocks than CTAs: what a multiprocessor has to do on average is nearly all there
// is.
TEST(HopperBackwardScheduler, KeyBlocksAreAssignedEvenly) {
  const AttentionProblem p = problem(1, 65536, 65536, 1, 1, true);
  const Played played = play<128>(p, 132);
  ASSERT_FALSE(played.stuck);
  EXPECT_LE(played.rounds, 1.02 * 512 * 513 / 2 / 132);
}

// Sequences whose lengths vary, by blocks in the order of their tickets, each of which is done before the
// next begins: if that never waits, nobody waits for a block with a later ticket.
template <int kQueries>
void expect_varlen(const std::vector<std::pair<int, int>>& lengths, int64_t H, int64_t Hkv, bool causal) {
  using KeyBlockT = KeyBlock<kKeys, kQueries>;
  std::vector<int32_t> cu_q{0}, cu_k{0};
  AttentionProblem p = problem(static_cast<int64_t>(lengths.size()), 0, 0, H, Hkv, causal);
  for (const auto& [q, k] : lengths) {
    cu_q.push_back(cu_q.back() + q), cu_k.push_back(cu_k.back() + k);
    p.Tq = std::max<int64_t>(p.Tq, q), p.Tk = std::max<int64_t>(p.Tk, k);
  }
  p.varlen = true, p.all_queries = cu_q.back(), p.all_keys = cu_k.back();
  const Sequences sequences{cu_q.data(), cu_k.data()};
  const BackwardTileScheduler l(p, kKeys, kQueries, 132);
  ASSERT_EQ(l.order, BackwardTileScheduler::Order::single);
  std::map<std::tuple<int, int, int>, int> key_blocks;  // first row, kv head, key block -> how often
  std::map<int64_t, int> counts;                        // by place of the tile
  for (int block = 0; block < l.ctas(); ++block) {
    SeqlenInfo z(p);
    z.enter_key_block(p, sequences, kKeys, kQueries, block % l.ctas_per_head);
    const KeyBlockT at(z, l, block, 0);
    ASSERT_FALSE(KeyBlockT(z, l, block, 1).exists);
    if (!at.exists) continue;
    ASSERT_EQ(at.b, 0);
    ++key_blocks[{z.first_key, at.hkv, at.j}];
    QueryTileIterator<KeyBlockT> walk(z, at);
    for (int n = at.steps(z); n > 0; --n, walk.next(at)) {
      const int64_t place = int64_t{walk.h} * l.query_tiles + z.first_tile + walk.tile;
      ASSERT_LT(walk.tile * kQueries, z.Tq);
      ASSERT_LT(place, H * l.query_tiles);
      ASSERT_EQ(at.dq_turn(z, l, walk.tile).turn, counts[place]) << "block " << block << " would wait";
      ++counts[place];
    }
  }
  std::size_t wanted_key_blocks = 0, wanted_tiles = 0;
  for (int b = 0; b < static_cast<int>(lengths.size()); ++b) {
    SeqlenInfo z(p);
    z.enter_sequence(p, sequences, kKeys, kQueries, b);
    EXPECT_EQ(z.Tq, lengths[static_cast<std::size_t>(b)].first);
    for (int j = 0; j * kKeys < z.Tk; ++j) {
      for (int hkv = 0; hkv < Hkv; ++hkv, ++wanted_key_blocks)
        ASSERT_EQ((key_blocks[{z.first_key, hkv, j}]), 1) << "key block " << j << " of sequence " << b;
    }
    for (int tile = 0; tile * kQueries < z.Tq; ++tile) {
      SeqlenInfo found(p);
      found.enter_query_tile(p, sequences, kKeys, kQueries, z.first_tile + tile);
      ASSERT_EQ(found.first_query, z.first_query);
      ASSERT_EQ(found.Tq, z.Tq);
      const int seen = KeyBlockT::last_key_block(z, tile) + 1;
      for (int h = 0; h < H && seen > 0; ++h, ++wanted_tiles)
        ASSERT_EQ(counts[int64_t{h} * l.query_tiles + z.first_tile + tile], seen)
            << "tile " << tile << " of " << b;
    }
  }
  const ForwardTileScheduler tiles(p, kQueries, 132);
  std::map<std::tuple<int, int, int>, int> met;  // first row, head, first query -> how often
  for (int n = 0; n < tiles.count(); ++n) {
    SeqlenInfo z(p);
    z.enter_query_tile(p, sequences, kKeys, kQueries, tiles.place(n).tile);
    const WorkTile<kQueries, kKeys> at(z, tiles, n);
    if (at.first < z.Tq) ++met[{z.first_query, at.h, at.first}];
    ASSERT_TRUE(at.first >= 0 && at.b == 0 && at.h < H);
  }
  std::size_t wanted_work_tiles = 0;
  for (const auto& [q, k] : lengths)
    wanted_work_tiles += static_cast<std::size_t>((q + kQueries - 1) / kQueries * H);
  EXPECT_EQ(met.size(), wanted_work_tiles);
  for (const auto& [tile, count] : met) ASSERT_EQ(count, 1);
  EXPECT_EQ(key_blocks.size(), wanted_key_blocks);
  EXPECT_EQ(counts.size(), wanted_tiles);
}

TEST(HopperBackwardScheduler, SequencesWhoseLengthsVary) {
  std::vector<std::pair<int, int>> many;
  for (int n = 0; n < 70; ++n) many.emplace_back(n * 97 % 411, n * 131 % 397);
  const std::vector<std::vector<std::pair<int, int>>> batches = {
      {{1, 1}}, {{128, 128}, {128, 128}}, {{0, 0}, {300, 300}, {0, 5}, {5, 0}, {64, 1000}, {1000, 64}}, many};
  for (const auto& lengths : batches) {
    for (const bool causal : {true, false}) {
      expect_varlen<128>(lengths, 4, 2, causal);
      expect_varlen<64>(lengths, 3, 3, causal);
    }
  }
}

}  // namespace
}  // namespace kiln::hopper
