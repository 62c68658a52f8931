// What ranks say of each other when something is wrong. One test per start of the program: after a failure
// the ranks of a run are no longer in step.
#include <gtest/gtest.h>

#include "dist_ranks/this_rank.h"

namespace kiln {
namespace {

MpiOptions impatient() {
  MpiOptions o;
  o.comm.timeout = std::chrono::milliseconds(1500);
  return o;
}

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

class Failures : public testing::Test {
 protected:
  void SetUp() override {
    if (this_rank().mpi->world() < 2) GTEST_SKIP() << "needs two ranks";
  }
  // What all ranks said. MPI still works for those who are there.
  static std::vector<std::string> told_by_all(const std::string& mine) {
    return this_rank().mpi->exchange(mine, RankRig::default_options());
  }
};

TEST_F(Failures, AnotherSizeIsToldToAllWithBothSides) {
  RankRig r;
  const int rank = r.ranks.rank();
  const Tensor t = r.ctx.zeros({rank == 1 ? 9 : 8}, DType::f32);
  const std::string said = error_of([&] { r.ranks.all_reduce(r.ctx, t, "w").wait(r.ctx); });
  EXPECT_EQ(said,
            "ranks disagree: rank 0 calls all_reduce of 8 fp32 (w), rank 1 calls all_reduce of 9 fp32 (w)");
  (void)told_by_all(said);
}

TEST_F(Failures, AnotherCollectiveIsToldToAllWithBothSides) {
  RankRig r;
  const Tensor t = r.ctx.zeros({8}, DType::bf16);
  const std::string said = error_of([&] {
    if (r.ranks.rank() == 1) {
      r.ranks.broadcast(r.ctx, t, 0, "w").wait(r.ctx);
    } else {
      r.ranks.all_reduce(r.ctx, t, "w").wait(r.ctx);
    }
  });
  EXPECT_EQ(said,
            "ranks disagree: rank 0 calls all_reduce of 8 bf16 (w), rank 1 calls broadcast from rank 0 of 8 "
            "bf16 (w)");
  (void)told_by_all(said);
}

TEST_F(Failures, ALongSubjectIsComparedToItsEnd) {
  RankRig r;
  const Tensor t = r.ctx.zeros({8}, DType::f32);
  const std::string subject = std::string(300, 'x') + (r.ranks.rank() == 1 ? "b" : "a");
  const std::string said = error_of([&] { r.ranks.all_reduce(r.ctx, t, subject).wait(r.ctx); });
  EXPECT_EQ(said.substr(0, 50),
            std::string("ranks disagree: rank 0 calls all_reduce of 8 fp32 (").substr(0, 50));
  (void)told_by_all(said);
}

TEST_F(Failures, ARankThatDoesNotComeIsNamedWithTheCollective) {
  for (const int absent : {1, 0}) {  // one that is waited for, and the one that holds the roll call
    RankRig r(Device::cpu(), impatient());
    const Tensor t = r.ctx.zeros({8}, DType::f32);
    std::string said;
    if (r.ranks.rank() != absent) {
      said = error_of([&] { r.ranks.all_reduce(r.ctx, t, "w").wait(r.ctx); });
      const int teller = absent == 0 ? r.ranks.rank() : 0;
      EXPECT_EQ(said, cat("[all_reduce of w] rank ", teller, " waited 1500 ms; missing: rank ", absent));
    }
    (void)told_by_all(said);
  }
}

TEST_F(Failures, AParcelNobodyTakesIsNamed) {
  RankRig r(Device::cpu(), impatient());
  const Tensor t = r.ctx.zeros({8}, DType::f32);
  std::string said;
  if (r.ranks.rank() == 0) {
    said = error_of([&] { r.ranks.send(r.ctx, t, 1, "w").wait(r.ctx); });
    EXPECT_EQ(said, "[send of w] rank 0 waited 1500 ms; missing: rank 1");
  }
  (void)told_by_all(said);
}

TEST_F(Failures, AParcelOfAnotherSizeIsToldByBothEnds) {
  RankRig r;
  const int rank = r.ranks.rank();
  const Tensor t = r.ctx.zeros({rank == 1 ? 9 : 8}, DType::f32);
  std::string said;
  if (rank == 0) said = error_of([&] { r.ranks.send(r.ctx, t, 1, "w").wait(r.ctx); });
  if (rank == 1) said = error_of([&] { r.ranks.recv(r.ctx, t, 0, "w").wait(r.ctx); });
  const std::string eight = "send to rank 1 of 8 fp32 (w)", nine = "send to rank 1 of 9 fp32 (w)";
  const std::string of_sender = cat("ranks disagree: rank 0 sends: ", eight, ", rank 1 expects: ", nine);
  const std::string of_taker = cat("ranks disagree: rank 1 expects: ", nine, ", rank 0 sends: ", eight);
  EXPECT_EQ(said, rank == 0 ? of_sender : rank == 1 ? of_taker : "");
  (void)told_by_all(said);
}

TEST_F(Failures, ARankThatGivesUpWakesTheOthers) {
  RankRig r;
  const Tensor t = r.ctx.zeros({8}, DType::f32);
  if (r.ranks.rank() == 1) {
    r.ranks.abort("the disk is full");
  } else {
    EXPECT_EQ(error_of([&] { r.ranks.all_reduce(r.ctx, t, "w").wait(r.ctx); }),
              "rank 1 failed: the disk is full");
  }
}

}  // namespace
}  // namespace kiln
