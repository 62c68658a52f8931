// Every collective between processes, at odd sizes, in every dtype, with shuffled timing, against what one
// process would compute.
#include <gtest/gtest.h>

#include "autograd/host_floats.h"
#include "base/rng.h"
#include "device/gpu_info.h"
#include "dist/launch/collectives_check.h"
#include "dist_ranks/this_rank.h"
#include "support/comm_values.h"

namespace kiln {
namespace {

struct Way {
  const char* name;
  DeviceType device;
  bool nccl;
  ReductionOrder reduction;
};

bool no_gpu() {
  std::string why;
  return list_gpus(&why).empty();
}

std::vector<float> drawn(int rank, int64_t count) {
  std::vector<float> v(static_cast<std::size_t>(count));
  const PhiloxKey key = philox_key(7, cat("rank ", rank));
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<float>(philox(key, i, 0).x % 2001) / 1000.0f - 1.0f;
  return v;
}

class EveryWay : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (GetParam().device == DeviceType::cuda && no_gpu()) GTEST_SKIP() << "no GPU here";
    if (GetParam().nccl && !nccl_built_in()) GTEST_SKIP() << "NCCL is not built in";
  }
  RankRig rig() const {
    MpiOptions o = RankRig::default_options();
    o.reduction = GetParam().reduction;
    return RankRig(GetParam().device == DeviceType::cuda ? Device::cuda(device_index()) : Device::cpu(), o,
                   GetParam().nccl);
  }
  static int device_index() {
    std::string why;
    return this_rank().env.local_rank % static_cast<int>(list_gpus(&why).size());
  }
};

TEST_P(EveryWay, DoctorsChecksPass) {
  for (int round = 0; round < kRounds; ++round) {
    RankRig r = rig();
    Shuffle late(round);
    late();
    const CollectivesReport report = check_collectives(r.ctx, r.ranks, static_cast<uint64_t>(round));
    EXPECT_TRUE(report.passed());
    EXPECT_GE(report.checks.size(), 31u);
    r.ranks.barrier(r.ctx, "end");
  }
}

// Every rank's numbers as `dtype` holds them, and their sums, added up pairwise and rounded once.
struct Summands {
  std::vector<std::vector<float>> of_rank;
  std::vector<float> sums;
  Summands(RankContext& ctx, int world, int64_t count, DType dtype) {
    const Tensor t = ctx.empty({count}, dtype);
    const auto rounded = [&](std::vector<float> v) {
      upload_floats(ctx, t, v);
      download_floats(ctx, t, v);
      return v;
    };
    for (int k = 0; k < world; ++k) of_rank.push_back(rounded(drawn(k, count)));
    sums.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < sums.size(); ++i) {
      std::vector<float> brought;
      for (const auto& v : of_rank) brought.push_back(v[i]);
      sums[i] = sum_pairwise(brought);
    }
    sums = rounded(sums);
  }
};

// Not whole numbers: each sum is compared with one made pairwise. `deterministic` gives its very bits, others
// come close.
TEST_P(EveryWay, SumsOfRoundedNumbers) {
  for (int round = 0; round < kRounds; ++round) {
    RankRig r = rig();
    Shuffle late(round);
    const int world = r.ranks.world(), rank = r.ranks.rank(), root = world - 1;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      const bool exact = GetParam().reduction == ReductionOrder::deterministic && dtype != DType::f64;
      const float slack = exact ? 0.0f : static_cast<float>(world) * (size_of(dtype) == 2 ? 0.02f : 1e-5f);
      for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{4097}, int64_t{700001}}) {
        SCOPED_TRACE(cat(count, " ", name_of(dtype)));
        const int64_t each = (count + world - 1) / world;
        const Summands whole(r.ctx, world, each * world, dtype);
        const auto mine = [&](int64_t n) {
          const Tensor t = r.ctx.empty({n}, dtype);
          const std::vector<float>& v = whole.of_rank[static_cast<std::size_t>(rank)];
          upload_floats(r.ctx, t, std::vector<float>(v.begin(), v.begin() + n));
          return t;
        };
        const auto expect_sums = [&](const Tensor& t, int64_t first, const char* what) {
          std::vector<float> got(static_cast<std::size_t>(t.numel()));
          download_floats(r.ctx, t, got);
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < got.size(); ++i)
            wrong += std::abs(got[i] - whole.sums[static_cast<std::size_t>(first) + i]) > slack ? 1 : 0;
          EXPECT_EQ(wrong, 0u) << what;
        };
        const Tensor everywhere = mine(count), at_root = mine(count), all = mine(each * world),
                     part = r.ctx.empty({each}, dtype);
        late();
        r.ranks.all_reduce(r.ctx, everywhere, "sum").wait(r.ctx);
        expect_sums(everywhere, 0, "all_reduce");
        r.ranks.reduce(r.ctx, at_root, root, "sum").wait(r.ctx);
        if (rank == root) expect_sums(at_root, 0, "reduce");
        r.ranks.reduce_scatter(r.ctx, all, part, "sum").wait(r.ctx);
        expect_sums(part, rank * each, "reduce_scatter");
      }
    }
    r.ranks.barrier(r.ctx, "end");
  }
}

// The rings by hand send parcels of different sizes both ways at once.
TEST_P(EveryWay, RingsByHand) {
  for (const CommAlgorithm algorithm : {CommAlgorithm::ring, CommAlgorithm::alternate}) {
    MpiOptions o = RankRig::default_options();
    o.reduction = GetParam().reduction;
    o.comm.algorithm = algorithm;
    RankRig r(GetParam().device == DeviceType::cuda ? Device::cuda(device_index()) : Device::cpu(), o,
              GetParam().nccl);
    for (int round = 0; round < kRounds; ++round) {
      Shuffle late(round);
      late();
      EXPECT_TRUE(check_collectives(r.ctx, r.ranks, static_cast<uint64_t>(round)).passed());
    }
    r.ranks.barrier(r.ctx, "end");
  }
}

// Two communicators at once, their calls in another order on each rank: each has its own thread.
TEST_P(EveryWay, GroupsWorkSideBySide) {
  if (this_rank().mpi->world() < 2) GTEST_SKIP() << "needs two ranks";
  RankRig r = rig();
  for (int round = 0; round < kRounds; ++round) {
    Shuffle late(round);
    auto a = r.ranks.split(r.ctx, 0, r.ranks.rank()), b = r.ranks.split(r.ctx, 0, -r.ranks.rank());
    ASSERT_EQ(b->rank(), r.ranks.world() - 1 - r.ranks.rank());
    const int64_t count = 100003;
    const Tensor x = r.ctx.empty({count}, DType::f32), y = r.ctx.empty({count}, DType::f32);
    upload_floats(r.ctx, x, std::vector<float>(static_cast<std::size_t>(count), 1.0f));
    upload_floats(r.ctx, y, std::vector<float>(static_cast<std::size_t>(count), 2.0f));
    late();
    CommHandle hx, hy;
    if ((r.ranks.rank() + round) % 2 == 0) {
      hx = a->all_reduce(r.ctx, x, "x");
      hy = b->all_reduce(r.ctx, y, "y");
    } else {
      hy = b->all_reduce(r.ctx, y, "y");
      hx = a->all_reduce(r.ctx, x, "x");
    }
    hy.wait(r.ctx);
    hx.wait(r.ctx);
    std::vector<float> got(static_cast<std::size_t>(count));
    download_floats(r.ctx, x, got);
    EXPECT_EQ(got, std::vector<float>(got.size(), static_cast<float>(r.ranks.world())));
    download_floats(r.ctx, y, got);
    EXPECT_EQ(got, std::vector<float>(got.size(), static_cast<float>(2 * r.ranks.world())));
    EXPECT_EQ(r.ranks.split(r.ctx, -1, 0), nullptr);
  }
  r.ranks.barrier(r.ctx, "end");
}

std::string name_of_way(const testing::TestParamInfo<Way>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Mpi, EveryWay,
                         testing::Values(Way{"deterministic", DeviceType::cpu, false,
                                             ReductionOrder::deterministic},
                                         Way{"library", DeviceType::cpu, false, ReductionOrder::library}),
                         name_of_way);
INSTANTIATE_TEST_SUITE_P(CudaMpi, EveryWay,
                         testing::Values(Way{"deterministic", DeviceType::cuda, false,
                                             ReductionOrder::deterministic}),
                         name_of_way);
INSTANTIATE_TEST_SUITE_P(CudaNccl, EveryWay,
                         testing::Values(Way{"deterministic", DeviceType::cuda, true,
                                             ReductionOrder::deterministic},
                                         Way{"library", DeviceType::cuda, true, ReductionOrder::library}),
                         name_of_way);

}  // namespace
}  // namespace kiln
