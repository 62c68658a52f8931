// Calls run asynchronously: the rank continues while they are in flight, and gets their errors where it
// waits. And what is remembered of them.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <latch>
#include <sstream>

#include "base/json_reader.h"
#include "support/comm_values.h"
#include "support/shuffled_ranks.h"

namespace kiln {
namespace {

TEST(CommAsync, ARankContinuesWhileItsCallWaitsForTheOthers) {
  for (int round = 0; round < kShuffles; ++round) {
    std::latch rank_0_went_on(1);
    run_thread_ranks(2, one_thread_each(), [&](RankContext& ctx, Communicator& comm) {
      const Tensor t = upload(ctx, values_of<float>(ctx.rank(), 101));
      if (ctx.rank() == 1) rank_0_went_on.wait();
      const CommHandle h = comm.all_reduce(ctx, t, "w");
      if (ctx.rank() == 0) {
        EXPECT_FALSE(h.done());  // rank 1 has not called
        rank_0_went_on.count_down();
      }
      h.wait(ctx);
      EXPECT_TRUE(h.done());
      expect_bits(ctx, t, sum_of_ranks<float>(2, 101), "all_reduce");
    });
  }
}

TEST(CommAsync, ManyCallsWithoutAWaitAndHandlesWaitedForInAnyOrder) {
  run_shuffled_ranks(3, one_thread_each(), [](RankContext& ctx, Communicator& comm, Shaker& shake) {
    constexpr int kCalls = 60;
    std::vector<Tensor> tensors;
    std::vector<CommHandle> handles;
    for (int i = 0; i < kCalls; ++i) {
      tensors.push_back(upload(ctx, values_of<float>(ctx.rank(), 1 + i)));
      handles.push_back(comm.all_reduce(ctx, tensors.back(), cat("w", i)));
      if (i % 10 == 0) shake();
    }
    for (int i = ctx.rank(); i < kCalls; i += 7)
      handles[static_cast<std::size_t>((i * 31) % kCalls)].wait(ctx);
    for (const CommHandle& h : handles) h.wait(ctx);
    for (int i = 0; i < kCalls; ++i)
      expect_bits(ctx, tensors[static_cast<std::size_t>(i)], sum_of_ranks<float>(3, 1 + i), "all_reduce");
  });
}

// Nothing waits, and everything the calls use is dropped at once: the run's end waits for them. The numbers
// themselves lie in memory that outlives the ranks, where the sums must be found.
TEST(CommAsync, CallsThatAreNotWaitedForStillRun) {
  constexpr int kWorld = 3, kCalls = 10;
  for (int round = 0; round < kShuffles; ++round) {
    std::vector<std::vector<std::vector<float>>> numbers(kWorld);
    for (int r = 0; r < kWorld; ++r) {
      for (int i = 0; i < kCalls; ++i)
        numbers[static_cast<std::size_t>(r)].push_back(values_of<float>(r, 1000 + i));
    }
    run_thread_ranks(kWorld, one_thread_each(), [&](RankContext& ctx, Communicator& comm) {
      Shaker shake(round, ctx.rank());
      for (std::vector<float>& mine : numbers[static_cast<std::size_t>(ctx.rank())]) {
        const Bytes bytes{mine.size() * sizeof(float)};
        comm.all_reduce(ctx, Tensor(Buffer::borrowed(mine.data(), bytes), {static_cast<int64_t>(mine.size())},
                                    DType::f32, ctx.device()));
        shake();
      }
    });
    for (int r = 0; r < kWorld; ++r) {
      for (int i = 0; i < kCalls; ++i)
        EXPECT_EQ(numbers[static_cast<std::size_t>(r)][static_cast<std::size_t>(i)],
                  sum_of_ranks<float>(kWorld, 1000 + i))
            << "call " << i << " of rank " << r;
    }
  }
}

// As many as there may be, on however few cores.
TEST(CommAsync, SixteenRanksOnAnyMachine) {
  run_shuffled_ranks(16, one_thread_each(), [](RankContext& ctx, Communicator& comm, Shaker& shake) {
    const auto pair = comm.split(ctx, ctx.rank() / 2, ctx.rank());
    for (int i = 0; i < 5; ++i) {
      const Tensor a = upload(ctx, values_of<float>(ctx.rank(), 37)),
                   b = upload(ctx, values_of<float>(pair->rank(), 5));
      const CommHandle all = comm.all_reduce(ctx, a, "all"), two = pair->all_reduce(ctx, b, "two");
      shake();
      two.wait(ctx);
      all.wait(ctx);
      expect_bits(ctx, a, sum_of_ranks<float>(16, 37), "all_reduce");
      expect_bits(ctx, b, sum_of_ranks<float>(2, 5), "all_reduce of two");
    }
  });
}

TEST(CommAsync, AnErrorIsThrownByTheWaitOfItsCallAndOfEveryLaterOne) {
  std::array<std::vector<std::string>, 2> told;
  EXPECT_THROW(run_thread_ranks(2, one_thread_each(),
                                [&](RankContext& ctx, Communicator& comm) {
                                  const Tensor t = ctx.zeros({8}, DType::f32);
                                  const CommHandle good = comm.all_reduce(ctx, t, "good");
                                  const CommHandle bad = comm.all_reduce(ctx, t, cat("w", ctx.rank()));
                                  const CommHandle later = comm.all_reduce(ctx, t, "later");
                                  EXPECT_NO_THROW(good.wait(ctx));
                                  for (const CommHandle& h : {later, bad, bad}) {
                                    try {
                                      h.wait(ctx);
                                      ADD_FAILURE() << "no error";
                                    } catch (const Error& e) {
                                      told[static_cast<std::size_t>(ctx.rank())].emplace_back(e.what());
                                    }
                                  }
                                  bad.wait(ctx);
                                }),
               Error);
  for (const auto& of_rank : told) {
    ASSERT_EQ(of_rank.size(), 3U);
    for (const std::string& m : of_rank)
      EXPECT_EQ(
          m,
          "ranks disagree: rank 0 calls all_reduce of 8 fp32 (w0), rank 1 calls all_reduce of 8 fp32 (w1)");
  }
}

TEST(CommAsync, AHandleOutlivesItsCommunicator) {
  run_thread_ranks(2, one_thread_each(), [](RankContext& ctx, Communicator& comm) {
    CommHandle h;
    const Tensor t = upload(ctx, values_of<float>(ctx.rank(), 5));
    {
      const auto again = comm.split(ctx, 0, ctx.rank());
      h = again->all_reduce(ctx, t);
    }
    EXPECT_TRUE(h.done());
    h.wait(ctx);
    expect_bits(ctx, t, sum_of_ranks<float>(2, 5), "all_reduce");
  });
}

TEST(CommAsync, RecordsTellTheOrderOfThings) {
  run_shuffled_ranks(2, one_thread_each(), [](RankContext& ctx, Communicator& comm, Shaker& shake) {
    const Tensor t = ctx.zeros({6}, DType::bf16), full = ctx.zeros({12}, DType::bf16);
    comm.all_reduce(ctx, t, "before").wait(ctx);
    comm.start_recording();
    const CommHandle h = comm.all_gather(ctx, t, full, "a");
    shake();
    comm.reduce_scatter(ctx, full, t, "b");
    const std::vector<CommRecord> records = comm.take_records(ctx);
    h.wait(ctx);
    ASSERT_EQ(records.size(), 2U);
    EXPECT_EQ(records[0].collective, Collective::all_gather);
    EXPECT_EQ(records[0].subject, "a");
    EXPECT_EQ(records[0].bytes, 12);
    EXPECT_EQ(records[1].collective, Collective::reduce_scatter);
    EXPECT_EQ(records[1].bytes, 24);
    for (const CommRecord& r : records) {
      EXPECT_LE(r.queued, r.started);
      EXPECT_LE(r.started, r.ended);
    }
    EXPECT_LE(records[0].ended, records[1].ended);
    EXPECT_TRUE(comm.take_records(ctx).empty());
  });
}

TEST(CommAsync, EveryRankWritesAFlightRecordWhenACallFails) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "kiln_flight";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  CommOptions options;
  options.timeout = std::chrono::seconds(3);  // a busy machine may keep a rank from a good call for long
  options.flight_folder = folder.string();
  std::latch others_gave_up(2);
  try {
    run_thread_ranks(
        3, one_thread_each(),
        [&](RankContext& ctx, Communicator& comm) {
          const Tensor t = ctx.zeros({5}, DType::f32);
          for (int i = 0; i < 1005; ++i) comm.all_reduce(ctx, t, cat("w", i));
          comm.barrier(ctx);
          if (ctx.rank() == 1) {
            others_gave_up.wait();
            comm.all_reduce(ctx, t, "last").wait(ctx);
          }
          const CommHandle h = comm.all_reduce(ctx, t, "last");
          comm.all_reduce(ctx, t, "never");
          try {
            h.wait(ctx);
          } catch (const Error&) {
            others_gave_up.count_down();
            throw;
          }
        },
        options);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("[all_reduce of last]"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("missing: rank 1"), std::string::npos) << e.what();
    EXPECT_NE(e.hint().find("rank 1: barrier"), std::string::npos) << e.hint();
    EXPECT_NE(e.hint().find("the last calls are in "), std::string::npos) << e.hint();
  }
  for (int rank : {0, 1, 2}) {
    std::ifstream file(folder / cat("flight-rank", rank, "-world.json"));
    ASSERT_TRUE(file.is_open()) << rank;
    std::stringstream text;
    text << file.rdbuf();
    const Json record = parse_json(text.str(), {}, "flight record");
    EXPECT_EQ(record["rank"], rank);
    EXPECT_EQ(record["world"], 3);
    EXPECT_EQ(record["transport"], "threads");
    EXPECT_NE(record["failure"].get<std::string>().find("missing: rank 1"), std::string::npos);
    const Json& calls = record["calls"];
    ASSERT_EQ(calls.size(), 1000U);
    bool found = false;
    for (const Json& c : calls) {
      if (c["subject"] != "last") {
        continue;
      }
      found = true;
      EXPECT_EQ(c["state"], "running");
      EXPECT_EQ(c["collective"], "all_reduce");
      EXPECT_EQ(c["count"], 5);
      EXPECT_EQ(c["bytes"], 20);
      EXPECT_EQ(c["sequence"], 1006);
    }
    EXPECT_TRUE(found);
    EXPECT_EQ(calls[0]["state"], "done");
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kiln
