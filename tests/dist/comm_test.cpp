// The collectives of thread ranks against a direct computation, to the bit; and what happens
// when ranks disagree, fail or stay away.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <latch>
#include <stdexcept>
#include <string>
#include <vector>

#include "dist/comm/reduce_ranks.h"
#include "dist/comm/threads/thread_group.h"
#include "support/comm_values.h"
#include "support/gpu.h"
#include "support/shuffled_ranks.h"

namespace kiln {
namespace {

using std::chrono::milliseconds;

RankOptions options_for(const Device& device, int threads = 1) {
  RankOptions o;
  o.device = device;
  o.threads = threads;
  return o;
}

template <class T>
void check_collectives(RankContext& ctx, Communicator& comm, Shaker& shake, int64_t count) {
  const int rank = comm.rank(), world = comm.world();
  const std::vector<T> mine = values_of<T>(rank, count);

  const Tensor t = upload(ctx, mine);
  shake();
  comm.all_reduce(ctx, t).wait(ctx);
  expect_bits(ctx, t, sum_of_ranks<T>(world, count), "all_reduce");

  for (int root : {0, world - 1}) {
    const Tensor toward = upload(ctx, mine);
    shake();
    comm.reduce(ctx, toward, root).wait(ctx);
    if (rank == root) expect_bits(ctx, toward, sum_of_ranks<T>(world, count), "reduce");
  }

  std::vector<T> everybody;
  for (int r = 0; r < world; ++r) {
    const std::vector<T> theirs = values_of<T>(r, count);
    everybody.insert(everybody.end(), theirs.begin(), theirs.end());
  }
  const Tensor shard = upload(ctx, mine);
  const Tensor full = ctx.zeros({count * world}, dtype_of<T>());
  shake();
  comm.all_gather(ctx, shard, full).wait(ctx);
  expect_bits(ctx, full, everybody, "all_gather");
  expect_bits(ctx, shard, mine, "all_gather's source");

  const Tensor whole = upload(ctx, values_of<T>(rank, count * world));
  const Tensor sum = ctx.zeros({count}, dtype_of<T>());
  shake();
  comm.reduce_scatter(ctx, whole, sum).wait(ctx);
  expect_bits(ctx, sum, part(sum_of_ranks<T>(world, count * world), rank, count), "reduce_scatter");
  expect_bits(ctx, whole, values_of<T>(rank, count * world), "reduce_scatter's source");
}

// A shard that is in the full tensor, at its own place.
template <class T>
void check_in_place(RankContext& ctx, Communicator& comm, int64_t count) {
  const int rank = comm.rank(), world = comm.world();
  const Tensor gathered = ctx.zeros({count * world}, dtype_of<T>());
  const Tensor mine = gathered.narrow(0, rank * count, count);
  ctx.upload(mine, values_of<T>(rank, count).data());
  comm.all_gather(ctx, mine, gathered).wait(ctx);
  for (int r = 0; r < world; ++r) {
    expect_bits(ctx, gathered.narrow(0, r * count, count), values_of<T>(r, count), "all_gather in place");
  }
  const Tensor whole = upload(ctx, values_of<T>(rank, count * world));
  comm.reduce_scatter(ctx, whole, whole.narrow(0, rank * count, count)).wait(ctx);
  expect_bits(ctx, whole.narrow(0, rank * count, count),
              part(sum_of_ranks<T>(world, count * world), rank, count), "reduce_scatter in place");
}

void check_all(const Device& device, int world) {
  run_shuffled_ranks(world, options_for(device), [](RankContext& ctx, Communicator& comm, Shaker& shake) {
    for (int64_t count : {1, 3, 1000, 4099}) {
      check_collectives<float>(ctx, comm, shake, count);
      check_collectives<bf16>(ctx, comm, shake, count);
      check_collectives<fp16>(ctx, comm, shake, count);
      check_collectives<double>(ctx, comm, shake, count);
      check_in_place<float>(ctx, comm, count);
    }
  });
}

// Several collectives queued before any wait, again and again, sizes changing, contexts coming and
// going.
void check_repeatedly(const Device& device, int world, int times) {
  for (int i = 0; i < times; ++i) {
    run_thread_ranks(world, options_for(device, 2), [i](RankContext& ctx, Communicator& comm) {
      const int64_t count = 1 + 37 * (i % 5);
      const std::vector<float> mine = values_of<float>(comm.rank(), count);
      const Tensor a = upload(ctx, mine), b = upload(ctx, mine), c = upload(ctx, mine);
      const Tensor full = ctx.empty({count * comm.world()}, DType::f32);
      const CommHandle ha = comm.all_reduce(ctx, a), hb = comm.all_reduce(ctx, b);
      const CommHandle hc = comm.all_gather(ctx, c, full);
      ha.wait(ctx);
      hb.wait(ctx);
      hc.wait(ctx);
      const std::vector<float> sum = sum_of_ranks<float>(comm.world(), count);
      expect_bits(ctx, a, sum, "all_reduce");
      expect_bits(ctx, b, sum, "all_reduce");
      comm.reduce_scatter(ctx, full, c).wait(ctx);
      std::vector<float> multiple(mine);  // everybody's shard r is rank r's values: the sum is world x mine
      for (int r = 1; r < comm.world(); ++r)
        for (std::size_t k = 0; k < multiple.size(); ++k) multiple[k] += mine[k];
      expect_bits(ctx, c, multiple, "reduce_scatter");
    });
  }
}

// --- errors. Each rank's own message is kept, in addition to the one that run_thread_ranks rethrows.

struct Outcome {
  std::vector<std::string> per_rank;
  std::string rethrown;
};

Outcome run_and_fail(const Device& device, int world,
                     const std::function<void(RankContext&, Communicator&)>& body,
                     milliseconds timeout = std::chrono::seconds(60)) {
  Outcome outcome;
  outcome.per_rank.resize(static_cast<std::size_t>(world));
  try {
    run_thread_ranks(world, options_for(device),
                     [&](RankContext& ctx, Communicator& comm) {
                       try {
                         body(ctx, comm);
                       } catch (const std::exception& e) {
                         outcome.per_rank[static_cast<std::size_t>(comm.rank())] = e.what();
                         throw;
                       }
                     },
                     {.timeout = timeout});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::exception& e) {
    outcome.rethrown = e.what();
  }
  return outcome;
}

void expect_on_all(const Outcome& outcome, std::initializer_list<const char*> parts) {
  for (const std::string& message : outcome.per_rank) {
    for (const char* p : parts)
      EXPECT_NE(message.find(p), std::string::npos) << "'" << p << "' in: " << message;
  }
  for (const char* p : parts) EXPECT_NE(outcome.rethrown.find(p), std::string::npos) << outcome.rethrown;
}

void check_disagreements(const Device& device) {
  auto zeros = [](RankContext& ctx, int64_t n, DType t) { return ctx.zeros({n}, t); };
  expect_on_all(
      run_and_fail(device, 2,
                   [&](RankContext& ctx, Communicator& comm) {
                     comm.all_reduce(ctx, zeros(ctx, comm.rank() == 0 ? 3 : 5, DType::f32)).wait(ctx);
                   }),
      {"ranks disagree", "rank 0 calls all_reduce of 3 fp32", "rank 1 calls all_reduce of 5 fp32"});
  expect_on_all(
      run_and_fail(
          device, 2,
          [&](RankContext& ctx, Communicator& comm) {
            comm.all_reduce(ctx, zeros(ctx, 4, comm.rank() == 0 ? DType::f32 : DType::bf16)).wait(ctx);
          }),
      {"rank 0 calls all_reduce of 4 fp32", "rank 1 calls all_reduce of 4 bf16"});
  expect_on_all(run_and_fail(device, 2,
                             [&](RankContext& ctx, Communicator& comm) {
                               const Tensor small = zeros(ctx, 4, DType::f32),
                                            large = zeros(ctx, 8, DType::f32);
                               if (comm.rank() == 0) {
                                 comm.all_gather(ctx, small, large).wait(ctx);
                               } else {
                                 comm.reduce_scatter(ctx, large, small).wait(ctx);
                               }
                             }),
                {"rank 0 calls all_gather of 4 fp32", "rank 1 calls reduce_scatter of 8 fp32"});
}

TEST(Comm, EqualsADirectComputationInRankOrder) {
  for (int world : {1, 2, 3, 4}) check_all(Device::cpu(), world);
}

// Every vector width adds as the plain loop does, up to the last odd element.
TEST(Comm, EveryInstructionSetGivesTheSameBits) {
  for (int isa = 0; isa <= static_cast<int>(best_cpu_isa()); ++isa) {
    RankOptions options = options_for(Device::cpu());
    options.cpu_isa = static_cast<CpuIsa>(isa);
    run_thread_ranks(3, options, [](RankContext& ctx, Communicator& comm) {
      Shaker shake(0, ctx.rank());
      for (int64_t count : {1, 7, 15, 17, 33, 129}) {
        check_collectives<float>(ctx, comm, shake, count);
        check_collectives<bf16>(ctx, comm, shake, count);
        check_collectives<fp16>(ctx, comm, shake, count);
        check_collectives<double>(ctx, comm, shake, count);
      }
    });
  }
}

TEST(Comm, FiftyTimesWithHandlesInFlight) { check_repeatedly(Device::cpu(), 4, 50); }

TEST(Comm, LargeTensorsOnSeveralThreadsPerRank) {
  run_shuffled_ranks(2, options_for(Device::cpu(), 3),
                     [](RankContext& ctx, Communicator& comm, Shaker& shake) {
                       check_collectives<float>(ctx, comm, shake, 100003);
                     });
}

TEST(Comm, MetaRanksAllocateAsCpuRanksDo) {
  auto peak = [](const Device& device) {
    std::size_t bytes = 0;
    run_thread_ranks(2, options_for(device), [&](RankContext& ctx, Communicator& comm) {
      const Tensor t = ctx.zeros({4099}, DType::f32), full = ctx.zeros({8198}, DType::f32);
      for (int i = 0; i < 3; ++i) {
        const Tensor dropped = ctx.zeros({4099}, DType::f32, Tag::comm);  // held until the wait
        comm.all_reduce(ctx, dropped);
      }
      comm.all_gather(ctx, t, full).wait(ctx);
      comm.reduce_scatter(ctx, full, t).wait(ctx);
      if (comm.rank() == 1) bytes = ctx.allocator().stats().peak[Tag::comm];
    });
    return bytes;
  };
  EXPECT_EQ(peak(Device::cpu()), 3 * round_up(4099 * 4, 512));
  EXPECT_EQ(peak(Device::meta()), peak(Device::cpu()));
}

TEST(Comm, DisagreeingRanksAllHearOfBoth) { check_disagreements(Device::cpu()); }

TEST(Comm, ARankThatIsDoneIsNamedToTheOneThatWaits) {
  const Outcome o = run_and_fail(Device::cpu(), 2, [](RankContext& ctx, Communicator& comm) {
    if (comm.rank() == 0) comm.all_reduce(ctx, ctx.zeros({4}, DType::f32)).wait(ctx);
  });
  for (const std::string& m : {o.per_rank[0], o.rethrown}) {
    EXPECT_NE(m.find("rank 0 calls all_reduce of 4 fp32"), std::string::npos) << m;
    EXPECT_NE(m.find("rank 1 calls barrier (end of the run)"), std::string::npos) << m;
  }
}

TEST(Comm, WrongTensorsAreNamedWithTheirShapes) {
  run_shuffled_ranks(2, options_for(Device::cpu()), [](RankContext& ctx, Communicator& comm, Shaker& shake) {
    auto message = [&](auto f) -> std::string {
      try {
        f();
      } catch (const Error& e) {
        return e.what();
      }
      return "no error";
    };
    const Tensor full = ctx.zeros({9}, DType::f32), shard = ctx.zeros({4}, DType::f32);
    EXPECT_EQ(message([&] { comm.all_gather(ctx, shard, full); }),
              "[all_gather] 2 shards of [4] fp32 do not make [9] fp32");
    EXPECT_EQ(message([&] { comm.reduce_scatter(ctx, full, shard); }),
              "[reduce_scatter] 2 shards of [4] fp32 do not make [9] fp32");
    EXPECT_EQ(message([&] { comm.all_gather(ctx, shard, ctx.zeros({8}, DType::bf16)); }),
              "[all_gather] 2 shards of [4] fp32 do not make [8] bf16");
    EXPECT_EQ(message([&] { comm.all_reduce(ctx, ctx.zeros({4}, DType::i32)); }),
              "[all_reduce] takes floating tensors, got int32");
    const Tensor strided = ctx.zeros({4, 4}, DType::f32).narrow(1, 0, 2);
    EXPECT_EQ(message([&] { comm.all_reduce(ctx, strided); }),
              "[all_reduce] needs a contiguous tensor, got a view of [4, 2]");
    // Each rank found out by itself, before any communication: the group can still be used.
    check_collectives<float>(ctx, comm, shake, 5);
  });
}

TEST(Comm, ARankThatThrowsEndsAllAndItsErrorIsRethrown) {
  for (int i = 0; i < 50; ++i) {
    const int thrower = i % 3;
    std::atomic<int> told{0};
    try {
      run_thread_ranks(3, options_for(Device::cpu()), [&](RankContext& ctx, Communicator& comm) {
        const Tensor t = ctx.zeros({64}, DType::f32);
        for (int step = 0;; ++step) {
          if (comm.rank() == thrower && step == i % 4) throw std::out_of_range("planted");
          try {
            comm.all_reduce(ctx, t).wait(ctx);
          } catch (const Error& e) {
            EXPECT_STREQ(e.what(), cat("rank ", thrower, " failed: planted").c_str());
            ++told;
            throw;
          }
        }
      });
      FAIL() << "nothing was thrown";
    } catch (const std::out_of_range& e) {  // the first error itself, not what the others made of it
      EXPECT_STREQ(e.what(), "planted");
    }
    EXPECT_EQ(told.load(), 2);
  }
}

TEST(Comm, AMissingRankIsNamed) {
  std::latch others_gave_up(2);
  const Outcome o = run_and_fail(
      Device::cpu(), 3,
      [&](RankContext& ctx, Communicator& comm) {
        const Tensor t = ctx.zeros({4}, DType::f32);
        if (comm.rank() == 1) others_gave_up.wait();
        try {
          comm.all_reduce(ctx, t).wait(ctx);
        } catch (const Error&) {
          if (comm.rank() != 1) others_gave_up.count_down();
          throw;
        }
      },
      milliseconds(200));
  for (const std::string& m : o.per_rank) {
    EXPECT_NE(m.find("[all_reduce]"), std::string::npos) << m;
    EXPECT_NE(m.find("waited 200 ms; missing: rank 1"), std::string::npos) << m;
    EXPECT_EQ(m.find("rank 1,"), std::string::npos) << m;
  }
  EXPECT_NE(o.rethrown.find("missing: rank 1"), std::string::npos) << o.rethrown;
}

TEST(Comm, ImpossibleWorldsAreRefused) {
  auto nothing = [](RankContext&, Communicator&) {};
  EXPECT_THROW(run_thread_ranks(0, options_for(Device::cpu()), nothing), Error);
  EXPECT_THROW(run_thread_ranks(-1, options_for(Device::cpu()), nothing), Error);
  EXPECT_THROW(run_thread_ranks(kMaxThreadRanks + 1, options_for(Device::cpu()), nothing), Error);
  EXPECT_NO_THROW(run_thread_ranks(kMaxThreadRanks, options_for(Device::cpu()), nothing));
}

TEST(Comm, ADeviceThatIsNotThereIsToldOnce) {
  if (!list_gpus().empty()) GTEST_SKIP() << "this machine has a GPU";
  try {
    run_thread_ranks(2, options_for(Device::cuda()), [](RankContext&, Communicator&) {});
    FAIL() << "ranks ran on a GPU that is not there";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unavailable);
  }
}

class CudaComm : public testing::Test {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

TEST_F(CudaComm, EqualsADirectComputationInRankOrder) { check_all(Device::cuda(), 2); }

TEST_F(CudaComm, FiftyTimesWithHandlesInFlight) { check_repeatedly(Device::cuda(), 2, 50); }

TEST_F(CudaComm, DisagreeingRanksAllHearOfBoth) { check_disagreements(Device::cuda()); }

}  // namespace
}  // namespace kiln
