// The rings written by hand: to the bit against a loop that adds in their order, and near the direct sums.
#include <gtest/gtest.h>

#include <cmath>

#include "support/comm_values.h"
#include "support/gpu.h"
#include "support/shuffled_ranks.h"

namespace kiln {
namespace {

// Element i is in part p of `parts`; the sum starts at rank p+1 and ends at rank p, rounded at every stop.
template <class T>
std::vector<T> sum_in_ring_order(int world, int64_t count) {
  const int64_t each = (count + world - 1) / world;
  std::vector<std::vector<T>> all;
  for (int r = 0; r < world; ++r) all.push_back(values_of<T>(r, count));
  std::vector<T> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto p = static_cast<int>(static_cast<int64_t>(i) / each);
    auto of = [&](int hop) { return all[static_cast<std::size_t>((p + 1 + hop) % world)][i]; };
    result[i] = of(0);
    for (int hop = 1; hop < world; ++hop)
      result[i] = static_cast<T>(static_cast<Accum<T>>(result[i]) + static_cast<Accum<T>>(of(hop)));
  }
  return result;
}

// A chain from behind the root to the root, rounded at every stop.
template <class T>
std::vector<T> sum_along_chain(int world, int root, int64_t count) {
  std::vector<T> sum = values_of<T>((root + 1) % world, count);
  for (int hop = 2; hop <= world; ++hop) {
    const std::vector<T> theirs = values_of<T>((root + hop) % world, count);
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] = static_cast<T>(static_cast<Accum<T>>(sum[i]) + static_cast<Accum<T>>(theirs[i]));
  }
  return sum;
}

template <class T>
std::vector<T> gathered(int world, int64_t count) {
  std::vector<T> all;
  for (int r = 0; r < world; ++r) {
    const std::vector<T> theirs = values_of<T>(r, count);
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  return all;
}

template <class T>
void check_ring(RankContext& ctx, Communicator& comm, Shaker& shake, int64_t count) {
  const int rank = comm.rank(), world = comm.world();
  const Tensor t = upload(ctx, values_of<T>(rank, count));
  shake();
  comm.all_reduce(ctx, t, "sum").wait(ctx);
  expect_bits(ctx, t, sum_in_ring_order<T>(world, count), "ring all_reduce");

  const Tensor whole = upload(ctx, values_of<T>(rank, count * world));
  const Tensor mine = ctx.zeros({count}, dtype_of<T>());
  shake();
  comm.reduce_scatter(ctx, whole, mine, "part").wait(ctx);
  const std::vector<T> sums = sum_in_ring_order<T>(world, count * world);
  expect_bits(ctx, mine, part(sums, rank, count), "ring reduce_scatter");
  expect_bits(ctx, whole, values_of<T>(rank, count * world), "ring reduce_scatter's source");
  comm.reduce_scatter(ctx, whole, whole.narrow(0, rank * count, count)).wait(ctx);
  expect_bits(ctx, whole.narrow(0, rank * count, count), part(sums, rank, count),
              "ring reduce_scatter in place");

  const Tensor shard = upload(ctx, values_of<T>(rank, count)),
               full = ctx.zeros({count * world}, dtype_of<T>());
  shake();
  comm.all_gather(ctx, shard, full, "all").wait(ctx);
  expect_bits(ctx, full, gathered<T>(world, count), "ring all_gather");
  ctx.upload(full.narrow(0, rank * count, count), values_of<T>(rank, count).data());
  comm.all_gather(ctx, full.narrow(0, rank * count, count), full).wait(ctx);
  expect_bits(ctx, full, gathered<T>(world, count), "ring all_gather in place");

  for (int root : {0, world - 1, world / 2}) {
    const Tensor toward = upload(ctx, values_of<T>(rank, count)), b = upload(ctx, values_of<T>(rank, count));
    shake();
    comm.reduce(ctx, toward, root, "root's").wait(ctx);
    if (rank == root) expect_bits(ctx, toward, sum_along_chain<T>(world, root, count), "ring reduce");
    shake();
    comm.broadcast(ctx, b, root, "root's").wait(ctx);
    expect_bits(ctx, b, values_of<T>(root, count), "ring broadcast");
  }
}

void check_rings(const Device& device, int world) {
  CommOptions options;
  options.algorithm = CommAlgorithm::ring;
  run_shuffled_ranks(
      world, one_thread_each(device),
      [](RankContext& ctx, Communicator& comm, Shaker& shake) {
        for (int64_t count : {1, 3, 7, 1001}) {  // 1 and 3: fewer elements than ranks, so parts are empty
          check_ring<float>(ctx, comm, shake, count);
          check_ring<bf16>(ctx, comm, shake, count);
          check_ring<double>(ctx, comm, shake, count);
        }
      },
      options);
}

TEST(CommRing, AddsInRingOrder) {
  for (int world : {1, 2, 3, 4, 5}) check_rings(Device::cpu(), world);
}

// The order differs, so the bits may; the sums of a few normals cannot be far apart.
TEST(CommRing, IsNearTheDirectSum) {
  for (int world : {2, 3, 5}) {
    std::vector<float> direct = sum_of_ranks<float>(world, 1001),
                       ring = sum_in_ring_order<float>(world, 1001);
    std::vector<double> size(ring.size());
    for (int r = 0; r < world; ++r) {
      const std::vector<float> theirs = values_of<float>(r, 1001);
      for (std::size_t i = 0; i < size.size(); ++i) size[i] += std::abs(static_cast<double>(theirs[i]));
    }
    bool differs = false;
    for (std::size_t i = 0; i < ring.size(); ++i) {
      ASSERT_NEAR(ring[i], direct[i], size[i] * world * 6e-8);
      differs |= ring[i] != direct[i];
    }
    EXPECT_EQ(differs, world > 2) << "the order must show from three ranks on";
  }
}

template <class T>
void check_alternate(RankContext& ctx, Communicator& comm, Shaker& shake, int64_t count) {
  const Tensor t = upload(ctx, values_of<T>(comm.rank(), count));
  shake();
  comm.all_reduce(ctx, t, "sum").wait(ctx);
  expect_bits(ctx, t, sum_of_ranks<T>(comm.world(), count), "alternate all_reduce");
}

void check_alternates(const Device& device, int world) {
  CommOptions options;
  options.algorithm = CommAlgorithm::alternate;
  run_shuffled_ranks(
      world, one_thread_each(device),
      [](RankContext& ctx, Communicator& comm, Shaker& shake) {
        for (int64_t count : {1, 3, 1001}) {
          check_alternate<float>(ctx, comm, shake, count);
          check_alternate<bf16>(ctx, comm, shake, count);
          check_alternate<double>(ctx, comm, shake, count);
          const Tensor b =
              upload(ctx, values_of<float>(comm.rank(), count));  // the others are the direct ones
          comm.broadcast(ctx, b, 0).wait(ctx);
          expect_bits(ctx, b, values_of<float>(0, count), "broadcast");
        }
      },
      options);
}

TEST(CommRing, TheAlternateOneIsTheDirectSumToTheBit) {
  for (int world : {1, 2, 3, 4, 5}) check_alternates(Device::cpu(), world);
}

TEST(CommRing, ScratchIsSharedByAllCallsAndPredictedByMeta) {
  for (CommAlgorithm algorithm : {CommAlgorithm::ring, CommAlgorithm::alternate}) {
    auto peak = [&](const Device& device) {
      std::size_t bytes = 0;
      CommOptions options;
      options.algorithm = algorithm;
      run_thread_ranks(
          3, one_thread_each(device),
          [&](RankContext& ctx, Communicator& comm) {
            const Tensor a = ctx.zeros({30}, DType::f32), b = ctx.zeros({4099}, DType::f32);
            const CommHandle first = comm.all_reduce(ctx, a), second = comm.all_reduce(ctx, b);
            const CommHandle third = comm.all_reduce(ctx, a);
            third.wait(ctx);
            if (ctx.rank() == 2) bytes = ctx.allocator().stats().peak[Tag::comm];
          },
          options);
      return bytes;
    };
    const std::size_t of_b =
        algorithm == CommAlgorithm::ring ? round_up(1367 * 4, 64) : 2 * round_up(4099 * 4, 64);
    EXPECT_EQ(peak(Device::cpu()), round_up(of_b, 512));
    EXPECT_EQ(peak(Device::meta()), peak(Device::cpu()));
  }
}

TEST(CommRing, RanksThatDisagreeAreToldByAll) {
  CommOptions options;
  options.algorithm = CommAlgorithm::ring;
  std::array<std::string, 3> told;
  EXPECT_THROW(run_thread_ranks(
                   3, one_thread_each(),
                   [&](RankContext& ctx, Communicator& comm) {
                     try {
                       comm.all_reduce(ctx, ctx.zeros({ctx.rank() == 2 ? 9 : 8}, DType::f32), "w").wait(ctx);
                     } catch (const Error& e) {
                       told[static_cast<std::size_t>(ctx.rank())] = e.what();
                       throw;
                     }
                   },
                   options),
               Error);
  for (const std::string& m : told) {
    EXPECT_NE(m.find("rank 0 calls barrier (all_reduce of 8 fp32 (w))"), std::string::npos) << m;
    EXPECT_NE(m.find("rank 2 calls barrier (all_reduce of 9 fp32 (w))"), std::string::npos) << m;
  }
}

class CudaCommRing : public testing::Test {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

TEST_F(CudaCommRing, AddsInRingOrder) {
  for (int world : {2, 3}) check_rings(Device::cuda(), world);
}

TEST_F(CudaCommRing, TheAlternateOneIsTheDirectSumToTheBit) {
  for (int world : {2, 3}) check_alternates(Device::cuda(), world);
}

}  // namespace
}  // namespace kiln
