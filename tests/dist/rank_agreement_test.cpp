#include "dist/launch/rank_agreement.h"

#include <gtest/gtest.h>

#include "dist/comm/threads/thread_group.h"

namespace kiln {
namespace {

RankOptions one_thread() {
  RankOptions o;
  o.threads = 1;
  return o;
}

TEST(RankAgreement, EveryRankHearsEveryOther) {
  run_thread_ranks(3, one_thread(), [](RankContext& ctx, Communicator& comm) {
    const std::vector<double> mine(static_cast<std::size_t>(2 * ctx.rank()), 1e15 + ctx.rank());
    EXPECT_EQ(all_gather_numbers(ctx, comm, mine, "n"),
              (std::vector<std::vector<double>>{{}, {1e15 + 1, 1e15 + 1}, std::vector<double>(4, 1e15 + 2)}));
    EXPECT_EQ(all_gather_numbers(ctx, comm, {}, "none"), std::vector<std::vector<double>>(3));
    EXPECT_EQ(all_gather_text(ctx, comm, ctx.rank() == 1 ? "\xff\tä" : "", "t"),
              (std::vector<std::string>{"", "\xff\tä", ""}));
    EXPECT_EQ(ctx.allocator().stats().live_total, 0u);
  });
}

TEST(RankAgreement, WhatFailsOnOneFailsOnAll) {
  std::vector<std::string> said(3);
  run_thread_ranks(3, one_thread(), [&](RankContext& ctx, Communicator& comm) {
    all_or_throw(ctx, comm, "fine", [] {});
    try {
      all_or_throw(ctx, comm, "work", [&] {
        if (ctx.rank() == 1) throw Error("the disk of rank 1 is full", "buy another", ErrorKind::usage);
      });
    } catch (const Error& e) {
      said[ctx.rank()] = e.what();
      EXPECT_EQ(e.kind() == ErrorKind::usage, ctx.rank() == 1);
    }
    all_or_throw(ctx, comm, "fine again", [] {});
  });
  EXPECT_EQ(said, (std::vector<std::string>{"rank 1 failed: the disk of rank 1 is full",
                                            "the disk of rank 1 is full",
                                            "rank 1 failed: the disk of rank 1 is full"}));
}

}  // namespace
}  // namespace kiln
