// Broadcast, point to point, barrier, and communicators made of others.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include "dist/comm/local_transport.h"
#include "dist/comm/mesh.h"
#include "support/comm_values.h"
#include "support/gpu.h"
#include "support/shuffled_ranks.h"

namespace kiln {
namespace {

template <class T>
void check_broadcast(RankContext& ctx, Communicator& comm, Shaker& shake, int64_t count) {
  for (int root = 0; root < comm.world(); ++root) {
    const Tensor t = upload(ctx, values_of<T>(comm.rank(), count));
    shake();
    comm.broadcast(ctx, t, root, "w").wait(ctx);
    expect_bits(ctx, t, values_of<T>(root, count), "broadcast");
  }
}

// Everybody sends to the right; what came in is sent on, of sizes that differ by rank.
void check_passing(RankContext& ctx, Communicator& comm, Shaker& shake) {
  const int rank = comm.rank(), world = comm.world(), left = (rank + world - 1) % world;
  const int64_t mine = 5 + rank, theirs = 5 + left;
  const Tensor out = upload(ctx, values_of<float>(rank, mine)), in = ctx.zeros({theirs}, DType::f32);
  shake();
  comm.send_recv(ctx, out, (rank + 1) % world, in, left, "round").wait(ctx);
  expect_bits(ctx, in, values_of<float>(left, theirs), "send_recv");
  // From the last to the first, one by one.
  const Tensor chain = ctx.zeros({7}, DType::i32);
  const std::vector<int32_t> values = {1, -2, 3, -4, 5, -6, 7};
  if (rank == world - 1) {
    ctx.upload(chain, values.data());
  } else {
    comm.recv(ctx, chain, rank + 1, "chain").wait(ctx);
  }
  shake();
  if (rank > 0) comm.send(ctx, chain, rank - 1, "chain").wait(ctx);
  std::vector<int32_t> got(7);
  ctx.download(got.data(), chain);
  EXPECT_EQ(got, values);
}

void check_moves(const Device& device, int world) {
  run_shuffled_ranks(world, one_thread_each(device), [](RankContext& ctx, Communicator& comm, Shaker& shake) {
    for (int64_t count : {1, 3, 1001}) {
      check_broadcast<float>(ctx, comm, shake, count);
      check_broadcast<bf16>(ctx, comm, shake, count);
      check_broadcast<double>(ctx, comm, shake, count);
    }
    if (comm.world() > 1) check_passing(ctx, comm, shake);
  });
}

TEST(CommGroups, BroadcastAndPassingOn) {
  for (int world : {1, 2, 3, 4, 5}) check_moves(Device::cpu(), world);
}

TEST(CommGroups, NobodyLeavesABarrierBeforeAllHaveCome) {
  for (int round = 0; round < kShuffles; ++round) {
    std::atomic<int> came{0};
    run_thread_ranks(4, one_thread_each(), [&](RankContext& ctx, Communicator& comm) {
      Shaker shake(round, ctx.rank());
      for (int i = 1; i <= 10; ++i) {
        shake();
        ++came;
        comm.barrier(ctx, "here");
        EXPECT_GE(came.load(), 4 * i);
        comm.barrier(ctx, "there");
      }
    });
  }
}

void check_groups(const Device& device) {
  run_shuffled_ranks(5, one_thread_each(device), [](RankContext& ctx, Communicator& comm, Shaker& shake) {
    // Odd and even ranks, the odd ones backwards; the last rank stays out.
    const int rank = comm.rank();
    const int color = rank == 4 ? -1 : rank % 2, key = rank % 2 == 1 ? -rank : rank;
    const std::unique_ptr<Communicator> half = comm.split(ctx, color, key);
    EXPECT_EQ(half == nullptr, rank == 4);
    if (half) {
      EXPECT_EQ(half->world(), 2);
      EXPECT_EQ(half->transport(), comm.transport());
      EXPECT_EQ(half->rank(), rank % 2 == 1 ? (rank == 3 ? 0 : 1) : rank / 2);
      // Both communicators have calls in flight at once.
      const Tensor a = upload(ctx, values_of<float>(half->rank(), 33));
      shake();
      const CommHandle h = half->all_reduce(ctx, a, "half");
      const Tensor b = upload(ctx, values_of<float>(rank, 7));
      const CommHandle all = comm.all_reduce(ctx, b, "all");
      h.wait(ctx);
      all.wait(ctx);
      expect_bits(ctx, a, sum_of_ranks<float>(2, 33), "all_reduce of a half");
      expect_bits(ctx, b, sum_of_ranks<float>(5, 7), "all_reduce of all");
    } else {
      const Tensor b = upload(ctx, values_of<float>(rank, 7));
      comm.all_reduce(ctx, b, "all").wait(ctx);
      expect_bits(ctx, b, sum_of_ranks<float>(5, 7), "all_reduce of all");
    }
  });
}

TEST(CommGroups, SplitByColourAndKey) { check_groups(Device::cpu()); }

TEST(CommGroups, AMeshSumsAlongItsRowsAndColumns) {
  run_shuffled_ranks(6, one_thread_each(), [](RankContext& ctx, Communicator& comm, Shaker& shake) {
    const Mesh mesh = make_mesh(ctx, comm, 2, 3);
    EXPECT_EQ(mesh.dp_rank, ctx.rank() / 3);
    EXPECT_EQ(mesh.tp_rank, ctx.rank() % 3);
    EXPECT_EQ(mesh.tp_group->world(), 3);
    EXPECT_EQ(mesh.dp_group->world(), 2);
    EXPECT_EQ(mesh.tp_group->rank(), mesh.tp_rank);
    EXPECT_EQ(mesh.dp_group->rank(), mesh.dp_rank);
    const std::vector<float> mine = {static_cast<float>(ctx.rank())};
    const Tensor row = upload(ctx, mine), column = upload(ctx, mine);
    shake();
    mesh.tp_group->all_reduce(ctx, row).wait(ctx);
    mesh.dp_group->all_reduce(ctx, column).wait(ctx);
    expect_bits<float>(ctx, row, {static_cast<float>(9 * mesh.dp_rank + 3)}, "row");
    expect_bits<float>(ctx, column, {static_cast<float>(2 * mesh.tp_rank + 3)}, "column");
  });
}

TEST(CommGroups, AMeshOnMetaHasItsSizes) {
  RankOptions options = one_thread_each(Device::meta());
  options.rank = 4;
  options.world = 6;
  RankContext ctx(options);
  Communicator all(ctx, make_meta_transport(4, 6, {}));
  const Mesh mesh = make_mesh(ctx, all, 2, 3);
  EXPECT_EQ(mesh.tp_group->world(), 3);
  EXPECT_EQ(mesh.tp_group->rank(), 1);
  EXPECT_EQ(mesh.dp_group->world(), 2);
  EXPECT_EQ(mesh.dp_group->rank(), 1);
  const Tensor shard = ctx.zeros({5}, DType::f32), full = ctx.zeros({15}, DType::f32);
  mesh.tp_group->all_gather(ctx, shard, full).wait(ctx);
  EXPECT_THROW(mesh.dp_group->all_gather(ctx, shard, full), Error);
}

TEST(CommGroups, AMeshThatDoesNotFitIsRefused) {
  try {
    run_thread_ranks(4, one_thread_each(),
                     [](RankContext& ctx, Communicator& comm) { make_mesh(ctx, comm, 2, 3); });
    FAIL() << "a mesh of six ranks was made of four";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "a mesh of 2 x 3 ranks does not hold the 4 of this run");
    EXPECT_EQ(e.kind(), ErrorKind::usage);
  }
}

// A rank that fails ends those that wait in groups it is not even in, and is named by its number in the run.
TEST(CommGroups, AFailureReachesEveryGroup) {
  std::array<std::string, 4> told;
  try {
    run_thread_ranks(
        4, one_thread_each(),
        [&](RankContext& ctx, Communicator& comm) {
          const auto half = comm.split(ctx, ctx.rank() / 2, ctx.rank());
          if (ctx.rank() == 3) throw std::out_of_range("planted");
          try {
            // 0 waits for 1 in one group while 1 waits for all; 2 waits for 3 in the other.
            (ctx.rank() == 1 ? comm : *half).all_reduce(ctx, ctx.zeros({4}, DType::f32), "w").wait(ctx);
          } catch (const Error& e) {
            told[static_cast<std::size_t>(ctx.rank())] = e.what();
            throw;
          }
        },
        {.timeout = std::chrono::hours(1)});
    FAIL() << "nothing was thrown";
  } catch (const std::out_of_range&) {  // NOLINT(bugprone-empty-catch): what rank 3 threw comes out
  }
  for (int r : {0, 1, 2}) {
    // A rank that waits for a notified one names that one.
    EXPECT_NE(told[static_cast<std::size_t>(r)].find("rank 3 failed: "), std::string::npos)
        << told[static_cast<std::size_t>(r)];
  }
}

TEST(CommGroups, SenderAndReceiverMustAgree) {
  std::array<std::string, 2> told;
  EXPECT_THROW(run_thread_ranks(2, one_thread_each(),
                                [&](RankContext& ctx, Communicator& comm) {
                                  try {
                                    if (ctx.rank() == 0) {
                                      comm.send(ctx, ctx.zeros({4}, DType::f32), 1, "w").wait(ctx);
                                    } else {
                                      comm.recv(ctx, ctx.zeros({5}, DType::f32), 0, "w").wait(ctx);
                                    }
                                  } catch (const Error& e) {
                                    told[static_cast<std::size_t>(ctx.rank())] = e.what();
                                    throw;
                                  }
                                }),
               Error);
  for (const std::string& m : told) {
    EXPECT_NE(m.find("ranks disagree: rank 0 sends"), std::string::npos) << m;
    EXPECT_NE(m.find("of 4 fp32 (w)"), std::string::npos) << m;
    EXPECT_NE(m.find("of 5 fp32 (w)"), std::string::npos) << m;
  }
}

TEST(CommGroups, AReceiverThatStaysAwayIsNamed) {
  std::latch told_0(1);
  std::string told;
  EXPECT_THROW(run_thread_ranks(2, one_thread_each(),
                                [&](RankContext& ctx, Communicator& comm) {
                                  if (ctx.rank() == 1) return told_0.wait();
                                  try {
                                    comm.send(ctx, ctx.zeros({4}, DType::f32), 1, "w").wait(ctx);
                                  } catch (const Error& e) {
                                    told = e.what();
                                    told_0.count_down();
                                    throw;
                                  }
                                },
                                {.timeout = std::chrono::milliseconds(200)}),
               Error);
  EXPECT_EQ(told, "[send of w] rank 0 waited 200 ms; missing: rank 1");
}

TEST(CommGroups, PeersThatAreNotThereAreRefused) {
  run_thread_ranks(2, one_thread_each(), [](RankContext& ctx, Communicator& comm) {
    const Tensor t = ctx.zeros({2}, DType::f32);
    EXPECT_THROW(comm.broadcast(ctx, t, 2), Error);
    EXPECT_THROW(comm.broadcast(ctx, t, -1), Error);
    EXPECT_THROW(comm.send(ctx, t, comm.rank()), Error);
    EXPECT_THROW(comm.recv(ctx, t, 7), Error);
  });
}

TEST(CommGroups, AloneEverythingIsACopy) {
  RankContext ctx(one_thread_each());
  Communicator comm(ctx, make_alone_transport(ctx.backend()));
  EXPECT_EQ(comm.transport(), "alone");
  EXPECT_EQ(comm.world(), 1);
  const std::vector<float> mine = values_of<float>(0, 9);
  const Tensor t = upload(ctx, mine), copy = ctx.zeros({9}, DType::f32), sum = ctx.zeros({9}, DType::f32);
  comm.all_reduce(ctx, t).wait(ctx);
  comm.broadcast(ctx, t, 0).wait(ctx);
  const CommHandle h = comm.all_gather(ctx, t, copy);
  EXPECT_TRUE(h.done());
  h.wait(ctx);
  comm.reduce_scatter(ctx, t, sum).wait(ctx);
  comm.barrier(ctx);
  for (const Tensor& x : {t, copy, sum}) expect_bits(ctx, x, mine, "alone");
  EXPECT_EQ(comm.split(ctx, 3, 0)->world(), 1);
  EXPECT_EQ(comm.split(ctx, -1, 0), nullptr);
}

class CudaCommGroups : public testing::Test {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

TEST_F(CudaCommGroups, BroadcastAndPassingOn) {
  for (int world : {2, 3}) check_moves(Device::cuda(), world);
}

TEST_F(CudaCommGroups, SplitByColourAndKey) { check_groups(Device::cuda()); }

}  // namespace
}  // namespace kiln
