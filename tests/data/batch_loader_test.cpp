#include "data/batch_loader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

// Shards of these sizes whose ids count up through all of them, so that an id names its place.
std::shared_ptr<const TokenSet> counting_tokens(std::initializer_list<int> sizes) {
  std::vector<TokenShard> shards;
  int32_t next = 0;
  for (const int size : sizes) {
    std::vector<int32_t> ids(static_cast<std::size_t>(size));
    std::iota(ids.begin(), ids.end(), next);
    next += size;
    shards.emplace_back(std::move(ids), "shard");
  }
  ThreadPool pool(1);
  return std::make_shared<TokenSet>(std::move(shards), next, pool);
}

using Flat = std::vector<int32_t>;

Flat flatten(std::span<const HostBatch> batches) {
  Flat all;
  for (const HostBatch& b : batches) {
    all.insert(all.end(), b.tokens.begin(), b.tokens.end());
    all.insert(all.end(), b.targets.begin(), b.targets.end());
  }
  return all;
}

TEST(WindowOrder, IsAPermutationAndEveryEpochHasItsOwn) {
  for (const uint64_t count : {1U, 2U, 3U, 4U, 5U, 16U, 17U, 100U, 1000U, 4097U}) {
    const WindowOrder order(count, 42);
    std::set<std::vector<uint64_t>> epochs;
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<uint64_t> places;
      std::set<uint64_t> seen;
      for (uint64_t i = 0; i < count; ++i) {
        places.push_back(order.at(epoch, i));
        ASSERT_LT(places.back(), count);
        seen.insert(places.back());
      }
      ASSERT_EQ(seen.size(), count);
      epochs.insert(places);
    }
    EXPECT_TRUE(count < 16 || epochs.size() == 3);
  }
  EXPECT_NE(WindowOrder(1000, 1).at(0, 0) * 1000 + WindowOrder(1000, 1).at(0, 1),
            WindowOrder(1000, 2).at(0, 0) * 1000 + WindowOrder(1000, 2).at(0, 1));
  EXPECT_LT(WindowOrder(uint64_t{1} << 40, 1).at(7, 12345), uint64_t{1} << 40);
  EXPECT_THROW(WindowOrder(0, 1), Error);
}

// Neighbours should not stay neighbours, and each place should get windows from everywhere.
TEST(WindowOrder, Mixes) {
  const WindowOrder order(10'000, 3);
  int close = 0;
  double sum = 0;
  for (uint64_t i = 0; i + 1 < 10'000; ++i) {
    const auto a = static_cast<double>(order.at(0, i)), b = static_cast<double>(order.at(0, i + 1));
    close += std::abs(a - b) < 10 ? 1 : 0;
    if (i < 1000) sum += a;
  }
  EXPECT_LT(close, 60);  // 20 expected
  EXPECT_NEAR(sum / 1000, 5000, 400);
}

TEST(BatchLoader, TargetsAreTheNextTokensAndWindowsStayInTheirShard) {
  const auto tokens = counting_tokens({21, 5, 11});  // 5 + 1 + 2 windows of 4
  BatchLoader loader(tokens, {.batch = 2, .context = 4, .shuffle = false, .prefetch = false});
  EXPECT_EQ(loader.windows(), 8U);
  const auto first = loader.next();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(Flat(first[0].tokens.begin(), first[0].tokens.end()), (Flat{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(Flat(first[0].targets.begin(), first[0].targets.end()), (Flat{1, 2, 3, 4, 5, 6, 7, 8}));
  (void)loader.next();
  const auto third = loader.next();  // the last of the first shard, the only one of the second
  EXPECT_EQ(Flat(third[0].tokens.begin(), third[0].tokens.end()), (Flat{16, 17, 18, 19, 21, 22, 23, 24}));
  EXPECT_EQ(Flat(third[0].targets.begin(), third[0].targets.end()), (Flat{17, 18, 19, 20, 22, 23, 24, 25}));
}

// Every window exactly once per epoch, for any number of ranks, micro-steps and batch sizes, even where a
// step begins in one epoch and ends in the next.
TEST(BatchLoader, EveryWindowExactlyOncePerEpoch) {
  const auto tokens = counting_tokens({101, 4, 38, 64});
  constexpr int64_t kT = 3;
  for (const auto& [world, micro, batch] :
       {std::tuple{1, 1, 1}, {2, 1, 3}, {3, 2, 2}, {4, 1, 5}, {2, 3, 4}}) {
    std::vector<std::unique_ptr<BatchLoader>> ranks;
    ranks.reserve(static_cast<std::size_t>(world));
    for (int r = 0; r < world; ++r) {
      ranks.push_back(std::make_unique<BatchLoader>(tokens, LoaderOptions{.batch = batch,
                                                                          .context = kT,
                                                                          .micro_steps = micro,
                                                                          .rank = r,
                                                                          .world = world,
                                                                          .seed = 9,
                                                                          .prefetch = r % 2 == 0}));
    }
    const uint64_t windows = ranks[0]->windows(), per_step = ranks[0]->windows_per_step();
    ASSERT_EQ(windows, 33U + 1 + 12 + 21);
    std::vector<int32_t> starts;  // of all windows, in the order of the sequence
    while (starts.size() < 3 * windows + per_step) {
      for (auto& rank : ranks) {
        for (const HostBatch& b : rank->next()) {
          for (std::size_t i = 0; i < b.tokens.size(); i += kT) {
            starts.push_back(b.tokens[i]);
            for (std::size_t t = 0; t < kT; ++t)
              ASSERT_EQ(b.targets[i + t], b.tokens[i] + static_cast<int32_t>(t) + 1);
          }
        }
      }
    }
    std::set<int32_t> first(starts.begin(), starts.begin() + static_cast<std::ptrdiff_t>(windows));
    ASSERT_EQ(first.size(), windows);
    for (uint64_t epoch = 1; epoch < 3; ++epoch) {
      const auto begin = starts.begin() + static_cast<std::ptrdiff_t>(epoch * windows);
      ASSERT_EQ(std::set<int32_t>(begin, begin + static_cast<std::ptrdiff_t>(windows)), first);
      ASSERT_FALSE(std::equal(begin, begin + static_cast<std::ptrdiff_t>(windows), starts.begin()));
    }
  }
}

// There is one sequence; how it is split among ranks does not change it.
TEST(BatchLoader, OneRankWithFourMicroStepsSeesWhatFourRanksSee) {
  const auto tokens = counting_tokens({500});
  BatchLoader one(tokens, {.batch = 2, .context = 5, .micro_steps = 4, .seed = 1});
  BatchLoader wide(tokens, {.batch = 8, .context = 5, .seed = 1});
  std::vector<std::unique_ptr<BatchLoader>> four;
  four.reserve(4);
  for (int r = 0; r < 4; ++r)
    four.push_back(std::make_unique<BatchLoader>(
        tokens, LoaderOptions{.batch = 2, .context = 5, .rank = r, .world = 4, .seed = 1}));
  for (int step = 0; step < 30; ++step) {
    Flat a, b, c;
    for (const HostBatch& m : one.next()) a.insert(a.end(), m.tokens.begin(), m.tokens.end());
    for (auto& rank : four) {
      const auto m = rank->next();
      b.insert(b.end(), m[0].tokens.begin(), m[0].tokens.end());
    }
    const auto m = wide.next();
    c.insert(c.end(), m[0].tokens.begin(), m[0].tokens.end());
    ASSERT_EQ(a, b);
    ASSERT_EQ(a, c);
  }
}

// Micro-step by micro-step instead of rank by rank: all ranks' first, then all ranks' second.
TEST(BatchLoader, RanksFirst) {
  const auto tokens = counting_tokens({500});
  BatchLoader one(tokens, {.batch = 2, .context = 5, .micro_steps = 6, .seed = 1});
  std::vector<std::unique_ptr<BatchLoader>> three;
  three.reserve(3);
  for (int r = 0; r < 3; ++r)
    three.push_back(std::make_unique<BatchLoader>(tokens, LoaderOptions{.batch = 2,
                                                                        .context = 5,
                                                                        .micro_steps = 2,
                                                                        .rank = r,
                                                                        .world = 3,
                                                                        .ranks_first = true,
                                                                        .seed = 1}));
  for (int step = 0; step < 10; ++step) {
    const std::span<const HostBatch> all = one.next();
    for (std::size_t r = 0; r < 3; ++r) {
      const std::span<const HostBatch> mine = three[r]->next();
      for (std::size_t m = 0; m < 2; ++m)
        ASSERT_EQ(flatten(mine.subspan(m, 1)), flatten(all.subspan(3 * m + r, 1))) << step << r << m;
    }
  }
}

TEST(BatchLoader, PrefetchGivesTheSameBytes) {
  const auto tokens = counting_tokens({333, 77});
  const LoaderOptions options{.batch = 3, .context = 7, .micro_steps = 2, .rank = 1, .world = 2, .seed = 5};
  LoaderOptions plain = options;
  plain.prefetch = false;
  BatchLoader a(tokens, options), b(tokens, plain);
  for (int step = 0; step < 50; ++step) {
    ASSERT_EQ(a.state(), b.state());
    ASSERT_EQ(flatten(a.next()), flatten(b.next())) << step;
    ASSERT_EQ(a.epoch(), b.epoch());
  }
}

TEST(BatchLoader, ResumesExactlyFromAnyPoint) {
  const auto tokens = counting_tokens({200, 50});
  const LoaderOptions options{.batch = 4, .context = 6, .micro_steps = 2, .seed = 8};
  BatchLoader straight(tokens, options);
  std::vector<Flat> steps;
  std::vector<std::string> saved;
  for (int i = 0; i < 20; ++i) {
    saved.push_back(to_json(straight.state()).dump());
    steps.push_back(flatten(straight.next()));
  }
  BatchLoader used(tokens, options);  // seeks back and forth
  for (const std::size_t from : {13U, 0U, 19U, 7U, 1U}) {
    const auto document = parse_json(saved[from], {}, "state");
    const LoaderState state = loader_state(JsonValue(document, "state"));
    LoaderOptions other = options;
    other.prefetch = from % 2 == 0;
    BatchLoader fresh(tokens, other);
    fresh.seek(state);
    used.seek(state);
    for (std::size_t i = from; i < steps.size(); ++i) {
      ASSERT_EQ(flatten(fresh.next()), steps[i]) << from << " " << i;
      ASSERT_EQ(flatten(used.next()), steps[i]) << from << " " << i;
    }
  }
}

// 1 rank for two steps, then 4: the sequence continues where it was.
TEST(BatchLoader, ResumesWithAnotherNumberOfRanks) {
  const auto tokens = counting_tokens({300});
  BatchLoader straight(tokens, {.batch = 8, .context = 5, .seed = 1});
  (void)straight.next();
  (void)straight.next();
  const LoaderState state = straight.state();
  const auto expected = straight.next();
  Flat all;
  for (int r = 0; r < 4; ++r) {
    BatchLoader rank(tokens, {.batch = 2, .context = 5, .rank = r, .world = 4, .seed = 1});
    rank.seek(state);
    const auto b = rank.next();
    all.insert(all.end(), b[0].tokens.begin(), b[0].tokens.end());
  }
  EXPECT_EQ(all, Flat(expected[0].tokens.begin(), expected[0].tokens.end()));
}

TEST(BatchLoader, RefusesToResumeInOtherData) {
  const auto tokens = counting_tokens({300});
  BatchLoader loader(tokens, {.batch = 2, .context = 5, .seed = 1});
  const LoaderState good = loader.state();
  const auto refusal = [&](auto&& spoil) {
    LoaderState s = good;
    spoil(s);
    const std::string text = KILN_ERROR_OF(loader.seek(s));
    return text.substr(0, text.find(" | "));
  };
  EXPECT_EQ(refusal([](LoaderState& s) { s.tokens = 301; }),
            "cannot resume in the data: the number of tokens was 301 and is 300");
  EXPECT_EQ(refusal([](LoaderState& s) { s.context = 6; }),
            "cannot resume in the data: the context was 6 and is 5");
  EXPECT_EQ(refusal([](LoaderState& s) { s.seed = 2; }),
            "cannot resume in the data: the seed was 2 and is 1");
  EXPECT_EQ(refusal([](LoaderState& s) { s.shuffle = false; }),
            "cannot resume in the data: shuffling was 0 and is 1");
  EXPECT_NE(refusal([](LoaderState& s) { s.next = ~uint64_t{0}; }).find("at window"), std::string::npos);
  const auto document = parse_json(R"({"next":-1,"seed":1,"shuffle":true,"context":5,"tokens":9})", {}, "s");
  EXPECT_NE(KILN_ERROR_OF(loader_state(JsonValue(document, "s"))).find("next is -1"), std::string::npos);
}

TEST(BatchLoader, RefusesOptionsThatCannotBe) {
  const auto tokens = counting_tokens({10, 4});
  const auto refusal = [&](const LoaderOptions& o) { return KILN_ERROR_OF(BatchLoader(tokens, o)); };
  EXPECT_EQ(refusal({.batch = 0}), "the loader's batch is 0; expected 1 or more");
  EXPECT_EQ(refusal({.rank = 2, .world = 2}), "the loader's rank is 2 of 2");
  EXPECT_EQ(
      refusal({.context = 10}),
      "the data has 10 tokens in a piece; a context of 10 needs 11 | give more text, or a shorter context");
  EXPECT_EQ(refusal({.batch = 1 << 20, .context = int64_t{1} << 30}),
            "a batch of 1 x 1048576 x 1073741824 tokens is too large");
}

TEST(BatchLoader, AnErrorInTheThreadReachesTheCaller) {
  const TempFolder folder;
  const std::string path = folder.write("a.bin", std::string(4096, '\1'));
  std::vector<TokenShard> shards;
  shards.emplace_back(path);
  ThreadPool pool(1);
  const auto tokens = std::make_shared<TokenSet>(std::move(shards), 70'000, pool);
  BatchLoader loader(tokens, {.batch = 2, .context = 16});
  (void)loader.next();
  std::filesystem::resize_file(path, 100);
  std::string text = "nothing";
  for (int i = 0; i < 3 && text == "nothing"; ++i) text = KILN_ERROR_OF(loader.next());
  EXPECT_NE(text.find("changed while it was read"), std::string::npos);
}

}  // namespace
}  // namespace kiln
