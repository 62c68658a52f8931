// The order in which flash_hopper's backward adds up dq, played through on the host: every pair of keys and
// queries that see each other is met once, every tile's turns are complete, and nobody waits for ever.
#include "ops/attention/cuda_hopper_walk.h"

#include "ops/attention/cuda_hopper_parts.h"

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
  std::map<std::tuple<int, int, int>, std::multiset<int>> met;        // b, h, tile -> lots
  std::map<std::tuple<int, int, int>, std::vector<int>> early, late;  // turns, in order of time
  std::map<std::tuple<int, int, int>, int> written;
  bool stuck = false;
  int waited = 0, rounds = 0;
};

// Every block makes a step at a time, if it is its turn; `at_once` blocks are there, in order of their
// numbers.
template <int kQueries>
Played play(const AttentionProblem& p, int at_once) {
  using Lot = KeyLot<kKeys, kQueries>;
  const Sizes z(p);
  const Lots l(p, kKeys, kQueries, at_once);
  struct Block {
    int number, s = 0, n = 0;
    QueryWalk<Lot> walk;
  };
  // What a block is done with when it leaves a head: true once all shares are there.
  const auto writes = [&](Played& played, const Lot& at) {
    if (!at.finishes_head(l)) return true;
    bool complete = true;
    for (int h = at.hkv * z.group; h < (at.hkv + 1) * z.group; ++h) {
      at.for_finished_tiles(z, l, [&](int tile) {
        const std::tuple<int, int, int> key{at.b, h, tile};
        const Shares shares = Lot::finished_shares(z, l, tile), general = Lot::shares(z, l, tile);
        EXPECT_EQ(shares.early, general.early);
        EXPECT_EQ(shares.late, general.late);
        complete = complete && static_cast<int>(played.early[key].size()) == shares.early &&
                   static_cast<int>(played.late[key].size()) == shares.late;
      });
    }
    if (!complete) return false;
    for (int h = at.hkv * z.group; h < (at.hkv + 1) * z.group; ++h)
      at.for_finished_tiles(z, l, [&](int tile) { ++played.written[{at.b, h, tile}]; });
    return true;
  };
  Played played;
  std::vector<Block> running;
  int next = 0;
  const auto start = [&] {
    while (static_cast<int>(running.size()) < at_once && next < l.blocks()) {
      running.push_back({next, 0, 0, QueryWalk<Lot>(z, Lot(z, l, next, 0))});
      ++next;
    }
  };
  start();
  while (!running.empty() && !played.stuck) {
    ++played.rounds;
    bool moved = false;
    std::vector<Block> left;
    std::vector<std::tuple<std::tuple<int, int, int>, Turn>> added;
    for (Block block : running) {
      Lot at(z, l, block.number, block.s);
      bool waits = false;
      while (at.exists && block.n == at.steps(z)) {  // on to the next lot
        waits = !writes(played, at);
        if (waits) break;
        at = Lot(z, l, block.number, ++block.s);
        block.n = 0;
        block.walk = QueryWalk<Lot>(z, at);
        moved = true;
      }
      if (!at.exists) continue;
      if (waits) {
        ++played.waited;
        left.push_back(block);
        continue;
      }
      const std::tuple<int, int, int> tile{at.b, block.walk.h, block.walk.tile};
      const Turn turn = at.turn(z, l, block.walk.tile);
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
  const bool by_blocks = Lots(p, kKeys, kQueries, at_once).finish();
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

TEST(HopperWalk, EveryTileIsMetOnceAndWrittenOnce) {
  for (const int64_t T : {1, 127, 128, 129, 300, 512, 700, 1024, 1100, 2900}) {
    for (const bool causal : {true, false}) {
      for (const int at_once : {1, 3, 4, 7, 132}) {
        expect_complete<128>(problem(2, T, T, 3, 3, causal), at_once);
        expect_complete<64>(problem(1, T, T, 4, 2, causal), at_once);
      }
    }
  }
}

TEST(HopperWalk, UnequalLengths) {
  for (const bool causal : {true, false}) {
    for (const auto& [Tq, Tk] : {std::pair<int, int>{1, 700}, {700, 1}, {130, 900}, {900, 130}, {512, 640}}) {
      for (const int at_once : {1, 5, 132}) {
        expect_complete<128>(problem(1, Tq, Tk, 2, 1, causal), at_once);
        expect_complete<64>(problem(1, Tq, Tk, 2, 2, causal), at_once);
      }
    }
  }
}

// The point of the orders: a step apart, blocks that begin together hardly wait.
TEST(HopperWalk, BlocksComeByOneAfterTheOther) {
  for (const bool causal : {true, false}) {
    const AttentionProblem p = problem(1, 4096, 4096, 4, 4, causal);
    const Played played = play<128>(p, 132);
    const int steps = causal ? 4 * 32 * 33 / 2 : 4 * 32 * 32;
    EXPECT_LE(played.waited, steps / 10) << (causal ? "causal" : "full");
  }
}

// A head with far more lots than blocks: what a multiprocessor has to do on average is nearly all there is.
TEST(HopperWalk, LotsAreDealtOutEvenly) {
  const AttentionProblem p = problem(1, 65536, 65536, 1, 1, true);
  const Played played = play<128>(p, 132);
  ASSERT_FALSE(played.stuck);
  EXPECT_LE(played.rounds, 1.02 * 512 * 513 / 2 / 132);
}

// Sequences whose lengths vary, by blocks in the order of their tickets, each of which is done before the
// next begins: if that never waits, nobody waits for a block with a later ticket.
template <int kQueries>
void expect_varied(const std::vector<std::pair<int, int>>& lengths, int64_t H, int64_t Hkv, bool causal) {
  using Lot = KeyLot<kKeys, kQueries>;
  std::vector<int32_t> cu_q{0}, cu_k{0};
  AttentionProblem p = problem(static_cast<int64_t>(lengths.size()), 0, 0, H, Hkv, causal);
  for (const auto& [q, k] : lengths) {
    cu_q.push_back(cu_q.back() + q), cu_k.push_back(cu_k.back() + k);
    p.Tq = std::max<int64_t>(p.Tq, q), p.Tk = std::max<int64_t>(p.Tk, k);
  }
  p.varied = true, p.all_queries = cu_q.back(), p.all_keys = cu_k.back();
  const Sequences sequences{cu_q.data(), cu_k.data()};
  const Lots l(p, kKeys, kQueries, 132);
  ASSERT_EQ(l.order, Lots::Order::single);
  std::map<std::tuple<int, int, int>, int> lots;  // first row, kv head, lot -> how often
  std::map<int64_t, int> shares;                  // by place of the tile
  for (int block = 0; block < l.blocks(); ++block) {
    Sizes z(p);
    z.enter_lot(p, sequences, kKeys, kQueries, block % l.per_head);
    const Lot at(z, l, block, 0);
    ASSERT_FALSE(Lot(z, l, block, 1).exists);
    if (!at.exists) continue;
    ASSERT_EQ(at.b, 0);
    ++lots[{z.first_key, at.hkv, at.j}];
    QueryWalk<Lot> walk(z, at);
    for (int n = at.steps(z); n > 0; --n, walk.next(at)) {
      const int64_t place = int64_t{walk.h} * l.tiles + z.first_tile + walk.tile;
      ASSERT_LT(walk.tile * kQueries, z.Tq);
      ASSERT_LT(place, H * l.tiles);
      ASSERT_EQ(at.turn(z, l, walk.tile).turn, shares[place]) << "block " << block << " would wait";
      ++shares[place];
    }
  }
  std::size_t wanted_lots = 0, wanted_tiles = 0;
  for (int b = 0; b < static_cast<int>(lengths.size()); ++b) {
    Sizes z(p);
    z.enter(p, sequences, kKeys, kQueries, b);
    EXPECT_EQ(z.Tq, lengths[static_cast<std::size_t>(b)].first);
    for (int j = 0; j * kKeys < z.Tk; ++j) {
      for (int hkv = 0; hkv < Hkv; ++hkv, ++wanted_lots)
        ASSERT_EQ((lots[{z.first_key, hkv, j}]), 1) << "lot " << j << " of sequence " << b;
    }
    for (int tile = 0; tile * kQueries < z.Tq; ++tile) {
      Sizes found(p);
      found.enter_tile(p, sequences, kKeys, kQueries, z.first_tile + tile);
      ASSERT_EQ(found.first_query, z.first_query);
      ASSERT_EQ(found.Tq, z.Tq);
      const int seen = Lot::last_lot(z, tile) + 1;
      for (int h = 0; h < H && seen > 0; ++h, ++wanted_tiles)
        ASSERT_EQ(shares[int64_t{h} * l.tiles + z.first_tile + tile], seen) << "tile " << tile << " of " << b;
    }
  }
  const Parts parts(p, kQueries, 132);
  std::map<std::tuple<int, int, int>, int> met;  // first row, head, first query -> how often
  for (int n = 0; n < parts.count(); ++n) {
    Sizes z(p);
    z.enter_tile(p, sequences, kKeys, kQueries, parts.place(n).tile);
    const QueryPart<kQueries, kKeys> at(z, parts, n);
    if (at.first < z.Tq) ++met[{z.first_query, at.h, at.first}];
    ASSERT_TRUE(at.first >= 0 && at.b == 0 && at.h < H);
  }
  std::size_t wanted_parts = 0;
  for (const auto& [q, k] : lengths)
    wanted_parts += static_cast<std::size_t>((q + kQueries - 1) / kQueries * H);
  EXPECT_EQ(met.size(), wanted_parts);
  for (const auto& [part, count] : met) ASSERT_EQ(count, 1);
  EXPECT_EQ(lots.size(), wanted_lots);
  EXPECT_EQ(shares.size(), wanted_tiles);
}

TEST(HopperWalk, SequencesWhoseLengthsVary) {
  std::vector<std::pair<int, int>> many;
  for (int n = 0; n < 70; ++n) many.emplace_back(n * 97 % 411, n * 131 % 397);
  const std::vector<std::vector<std::pair<int, int>>> batches = {
      {{1, 1}}, {{128, 128}, {128, 128}}, {{0, 0}, {300, 300}, {0, 5}, {5, 0}, {64, 1000}, {1000, 64}}, many};
  for (const auto& lengths : batches) {
    for (const bool causal : {true, false}) {
      expect_varied<128>(lengths, 4, 2, causal);
      expect_varied<64>(lengths, 3, 3, causal);
    }
  }
}

}  // namespace
}  // namespace kiln::hopper
