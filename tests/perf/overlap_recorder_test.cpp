// Ledgers of real steps on a modelled link: what must hold whatever the timing.
#include "perf/comm/overlap_recorder.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "dist/strategy/strategies.h"
#include "perf/comm/overlap_replay.h"
#include "perf/comm/zero_theory.h"
#include "studies/step/synthetic_step.h"
#include "support/gpu.h"
#include "support/shuffled_ranks.h"
#include "support/tiny_run.h"

namespace kiln {
namespace {

constexpr int kWorld = 2;

StepSpec tiny_spec() {
  StepSpec spec;
  spec.model = TinyRun().model;
  spec.step.batch = 1;
  spec.step.context = 9;
  spec.step.graph = false;
  return spec;
}

struct Seen {
  OverlapLedger ledger;
  CommVolume volume;
  std::size_t buckets = 0, trainable = 0;
  BucketOptions options;
};

// The second step of rank 0.
Seen step_of(const std::string& strategy, double bucket_mb, const LinkModel& link, int round,
             const Device& device = Device::cpu()) {
  Seen seen;
  CommOptions options;
  options.link = link;
  run_thread_ranks(
      kWorld, one_thread_each(device),
      [&](RankContext& ctx, Communicator& comm) {
        Shaker shake(round, ctx.rank());
        const auto made = make_strategy(strategy, {bucket_mb, DType::f32}, ctx, comm);
        auto& bucketed = dynamic_cast<BucketedStrategy&>(*made);
        SyntheticStep run(ctx, tiny_spec(), made.get());
        OverlapRecorder recorder(ctx, comm);
        bucketed.observe(&recorder);
        OverlapLedger ledger;
        for (int i = 0; i < 2; ++i) {
          shake();
          recorder.begin_step();
          run.run();
          ledger = recorder.end_step();
        }
        bucketed.observe(nullptr);
        if (ctx.rank() != 0) return;
        seen = {std::move(ledger), bucketed.volume(), bucketed.buckets().size(), 0, bucketed.options()};
        for (const Param& p : run.params().params()) seen.trainable += p.trainable;
      },
      options);
  return seen;
}

void expect_sound(const Seen& s, const LinkModel& link) {
  const OverlapLedger& l = s.ledger;
  EXPECT_EQ(l.gradients.size(), s.trainable);
  EXPECT_LT(0, l.backward_begin);
  EXPECT_LT(l.backward_begin, l.backward_end);
  EXPECT_LE(l.backward_end, l.sums_end);
  EXPECT_LE(l.sums_end, l.end);
  for (const ReadyGradient& g : l.gradients) {
    EXPECT_GE(g.ready, l.backward_begin) << g.name;
    EXPECT_LE(g.ready, l.backward_end) << g.name;
  }
  std::size_t buckets = 0;
  double before = 0;
  const CallSeconds seconds = seconds_on(link, kWorld);
  for (const LedgerEntry& e : l.entries) {
    buckets += e.bucket;
    EXPECT_LE(e.ready, e.start) << e.name;
    EXPECT_GE(e.start, before) << e.name;  // one after the other
    EXPECT_GE(e.end - e.start, 1e6 * seconds(e.collective, e.bytes) - 1) << e.name;
    EXPECT_LE(e.exposed, e.end - e.start + 1e-3) << e.name;
    before = e.end;
  }
  EXPECT_EQ(buckets, s.buckets);
  const OverlapTotals t = totals_of(l);
  EXPECT_LE(t.exposed, t.communication + 1e-3);
  EXPECT_LE(t.exposed, t.waited + 1e-3);
  EXPECT_GT(t.exposed, 0);  // nothing can hide the sum of the norm
}

TEST(OverlapRecorder, EveryFormOfDdp) {
  const LinkModel link = {50e-6, 500e6};
  for (int round = 0; round < kShuffles; ++round) {
    for (const char* form : {"ddp:naive", "ddp:flat", "ddp:overlap", "ddp:bucketed"}) {
      SCOPED_TRACE(cat(form, " round ", round));
      const Seen s = step_of(form, 0.02, link, round);
      expect_sound(s, link);
      int64_t bytes = 0;
      std::size_t others = 0;
      for (const LedgerEntry& e : s.ledger.entries) {
        bytes += e.bucket ? e.bytes : 0;
        others += !e.bucket;
        if (e.bucket && !s.options.as_ready) {
          EXPECT_GE(e.start, s.ledger.backward_end);
        }
      }
      EXPECT_EQ(bytes, static_cast<int64_t>(s.volume.all_reduce));
      EXPECT_EQ(others, 1u);  // loss and squares
      EXPECT_NEAR(sent_bytes(s.ledger, kWorld), s.volume.sent_per_rank(kWorld), 0.5);
      // Made of the same gradients, a replay has the same calls.
      const OverlapLedger again = replay(compute_of(s.ledger), s.options, seconds_on(link, kWorld));
      ASSERT_EQ(again.entries.size(), s.ledger.entries.size());
      for (std::size_t i = 0; i < again.entries.size(); ++i) {
        EXPECT_EQ(again.entries[i].name, s.ledger.entries[i].name);
        EXPECT_EQ(again.entries[i].bytes, s.ledger.entries[i].bytes);
      }
    }
  }
}

// There the host is past backward before the device has begun: moments of the host's clock would make naive
// hide its sums.
class CudaOverlapRecorder : public testing::Test {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

TEST_F(CudaOverlapRecorder, ComputeIsTimedByTheDevice) {
  const LinkModel link = {50e-6, 500e6};
  for (const char* form : {"ddp:naive", "ddp:flat", "ddp:bucketed"}) {
    SCOPED_TRACE(form);
    const Seen s = step_of(form, 0.02, link, 1, Device::cuda(0));
    EXPECT_EQ(s.ledger.gradients.size(), s.trainable);
    EXPECT_LT(s.ledger.backward_begin, s.ledger.backward_end);
    double before = 0;
    for (const LedgerEntry& e : s.ledger.entries) {
      EXPECT_GE(e.start, before - 20) << e.name;  // two events of two streams, put on one clock
      before = e.end;
      if (!e.bucket) continue;
      EXPECT_LE(e.ready, e.start + 20) << e.name;
      if (!s.options.as_ready) {
        EXPECT_GE(e.start, s.ledger.backward_end - 20) << e.name;
      }
    }
    if (!s.options.as_ready) {
      EXPECT_LT(totals_of(s.ledger).hidden_share(), 0.1);
    }
  }
}

TEST(OverlapRecorder, ZeroSendsWhatItsVolumeSays) {
  const LinkModel link = {50e-6, 500e6};
  for (const char* strategy : {"zero1:simple", "zero1", "zero2"}) {
    SCOPED_TRACE(strategy);
    const Seen s = step_of(strategy, 0.02, link, 1);
    expect_sound(s, link);
    EXPECT_NEAR(sent_bytes(s.ledger, kWorld), s.volume.sent_per_rank(kWorld), 0.5);
    std::set<std::string> kinds;
    for (const LedgerEntry& e : s.ledger.entries) kinds.insert(e.collective);
    const bool simple = std::string_view(strategy) == "zero1:simple";
    EXPECT_EQ(kinds, simple ? (std::set<std::string>{"all_reduce", "broadcast"})
                            : (std::set<std::string>{"all_gather", "all_reduce", "reduce_scatter"}));
  }
}

// What the ledger predicts for another link and other buckets, and what is measured there. How long things
// take is for the reader; that no step is faster than its link, for the test.
TEST(OverlapRecorder, WhatIfsThatAreTried) {
  const LinkModel link = {100e-6, 20e6};
  const Seen s = step_of("ddp:bucketed", 0.02, link, 0);
  const std::vector<WhatIf> all = what_ifs(compute_of(s.ledger), s.options, link, kWorld);
  ASSERT_EQ(all.size(), 3u);
  LinkModel faster = link;
  faster.bandwidth *= 2;
  const Seen tried[] = {s, step_of("ddp:bucketed", 0.02, faster, 0), step_of("ddp:bucketed", 0.08, link, 0)};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double alone = totals_of(all[i].ledger).communication,
                 seen = totals_of(tried[i].ledger).communication;
    RecordProperty(cat("predicted_us_", i), cat(all[i].ledger.end));
    RecordProperty(cat("measured_us_", i), cat(tried[i].ledger.end));
    EXPECT_EQ(tried[i].ledger.entries.size(), all[i].ledger.entries.size()) << all[i].change;
    EXPECT_GE(seen, alone - 5) << all[i].change;
    EXPECT_GE(tried[i].ledger.end, alone) << all[i].change;
  }
  EXPECT_LT(totals_of(all[1].ledger).communication, totals_of(all[0].ledger).communication);
  EXPECT_LT(all[2].ledger.entries.size(), all[0].ledger.entries.size());
}

TEST(OverlapRecorder, ComputeAloneTellsTheSameGradients) {
  const Seen shared = step_of("ddp:overlap", 0, {0, 1e12}, 0);
  OverlapLedger alone;
  run_thread_ranks(kWorld, one_thread_each(), [&](RankContext& ctx, Communicator& comm) {
    ComputeAlone strategy;
    SyntheticStep run(ctx, tiny_spec(), &strategy);
    OverlapRecorder recorder(ctx, comm);
    strategy.observe(&recorder);
    recorder.begin_step();
    run.run();
    OverlapLedger ledger = recorder.end_step();
    strategy.observe(nullptr);
    if (ctx.rank() == 0) alone = std::move(ledger);
  });
  EXPECT_TRUE(alone.entries.empty());
  EXPECT_TRUE(alone.waits.empty());
  ASSERT_EQ(alone.gradients.size(), shared.ledger.gradients.size());
  for (std::size_t i = 0; i < alone.gradients.size(); ++i) {
    EXPECT_EQ(alone.gradients[i].name, shared.ledger.gradients[i].name);
    EXPECT_EQ(alone.gradients[i].bytes, shared.ledger.gradients[i].bytes);
  }
}

TEST(ZeroTheory, IsThePapers) {
  const PrecisionPolicy fp32 = policy_of(Precision::fp32), bf16 = policy_of(Precision::bf16);
  EXPECT_DOUBLE_EQ(zero_theory("0", fp32, 1000, 4).state(), 16000);
  EXPECT_DOUBLE_EQ(zero_theory("1", fp32, 1000, 4).state(), 10000);
  EXPECT_DOUBLE_EQ(zero_theory("2", fp32, 1000, 4).state(), 7000);
  EXPECT_DOUBLE_EQ(zero_theory("3", fp32, 1000, 4).state(), 4000);
  EXPECT_DOUBLE_EQ(zero_theory("1:simple", bf16, 1000, 4).state(), 2000 + 2000 + 4000 + 2000);
  EXPECT_DOUBLE_EQ(zero_theory("1", bf16, 1000, 4).state(), 2000 + 500 + 4000 + 2000);
  EXPECT_DOUBLE_EQ(zero_theory("0", fp32, 1000, 4).sent, 6000);
  EXPECT_DOUBLE_EQ(zero_theory("1:simple", fp32, 1000, 4).sent, 9000);
  EXPECT_DOUBLE_EQ(zero_theory("2", fp32, 1000, 4).sent, 6000);
  EXPECT_DOUBLE_EQ(zero_theory("3", fp32, 1000, 4).sent, 9000);
  EXPECT_DOUBLE_EQ(zero_theory("2", fp32, 1000, 1).sent, 0);
}

}  // namespace
}  // namespace kiln
