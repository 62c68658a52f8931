// Pages of `kiln bench ddp` and `bench zero`, of made-up reports whose figures can be checked by hand, and of
// runs as small as they get.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/options.h"
#include "dist/strategy/ddp.h"
#include "studies/ranks/ddp.h"
#include "studies/ranks/fsdp.h"
#include "studies/ranks/zero.h"
#include "support/csv_cells.h"
#include "support/temp_folder.h"
#include "train/run/auto_bucket.h"

namespace kiln::cli {
namespace {

Timing timing_of_us(double us) { return summarize({us / 1e6, us / 1e6, us / 1e6, us / 1e6}); }

// The step of tests/perf/overlap_test.cpp: 350 us of compute, gradients of 1000, 2000 and 1000 bytes, an
// all-reduce of b bytes takes 20 + b/100 us.
BenchDdpReport made_up_ddp() {
  BenchDdpReport r;
  r.device = "cpu";
  r.request.size = find_model_size("nano");
  r.request.forms = {"naive", "bucketed"};
  r.request.link = LinkModel{10e-6, 100e6};
  r.request.ranks = 2;
  r.compute = timing_of_us(350);
  r.timeline.backward_begin = 100;
  r.timeline.backward_end = 300;
  r.timeline.end = 350;
  r.timeline.gradients = {{"a", 1000, 0, 150}, {"b", 2000, 1000, 200}, {"c", 1000, 3000, 300}};
  r.gradient_bytes = 4000;
  r.cost = sum_cost(*r.request.link, 2);
  r.cost_from = "the modelled link";
  r.best = best_bucket(4000, r.cost);
  const auto add = [&](const char* form, double mb, const BucketOptions& options, double us) {
    DdpRow& row = r.rows.emplace_back();
    row.form = form;
    row.bucket_mb = mb;
    row.options = options;
    row.predicted = row.run.ledger = replay(r.timeline, options, r.call_seconds());
    row.communication_alone = communication_alone(r.timeline, options, r.call_seconds());
    row.calls = row.predicted.entries.size();
    row.run.timing = timing_of_us(us);
    row.run.here = true;
  };
  add("naive", 0, DdpStrategy::naive(), 460);
  add("bucketed", 0.003, BucketOptions{.cap = 3000}, 400);
  return r;
}

TEST(BenchDdp, RowsHaveAchievedPredictedAndFloor) {
  BenchDdpReport r = made_up_ddp();
  const std::string csv = written(ddp_page(r), PageFormat::csv);
  ASSERT_EQ(lines_of(csv).size(), 3u);
  const std::vector<std::string> keys = {"form",
                                         "bound",
                                         "bucket_mb",
                                         "calls",
                                         "p50_ms",
                                         "std_ms",
                                         "speedup_over_naive",
                                         "communication_ms",
                                         "communication_share",
                                         "hidden_share",
                                         "exposed_ms",
                                         "predicted_ms",
                                         "compute_ms",
                                         "communication_alone_ms",
                                         "of_larger",
                                         "roofline_ms"};
  EXPECT_EQ(picked(csv, 1, keys), "naive latency  3 0.46 0 1 0.1 0.222222 0 0.1 0.45 0.35 0.1 1.31429 0.35");
  const std::string bucketed = picked(csv, 2, keys);
  EXPECT_EQ(bucketed,
            "bucketed bandwidth 0.003 2 0.4 0 1.15 0.08 0.210526 0.625 0.03 0.38 0.35 0.08 1.14286 0.35");
  r.rows[1].run.timing = timing_of_us(500);
  EXPECT_NE(picked(written(ddp_page(r), PageFormat::csv), 2, keys), bucketed);
  const std::string text = written(ddp_page(made_up_ddp()), PageFormat::markdown);
  EXPECT_NE(text.find("| bucketed | 0.003 | not verified | 0.4 | 0 % | 1.15x | 0.08 | 21 % | 62 % | 0.03 | "
                      "0.38 | 0.35 |"),
            std::string::npos)
      << text;
}

TEST(BenchDdp, PageSaysWhichBucketIsBest) {
  const BenchDdpReport r = made_up_ddp();
  // sqrt(4000 bytes x 100 bytes/us x 20 us) = 2828 bytes
  const std::string text = written(ddp_page(r), PageFormat::text);
  EXPECT_NE(
      text.find("best bucket by sqrt(s w o): 0.00283 MB (1.41 of them) of 0.004 MB of gradients; of those "
                "tried, by replay 0.003 MB, as measured 0.003 MB"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("link=modelled (latency=10us,bandwidth=100MB/s)"), std::string::npos) << text;
  EXPECT_NE(text.find("bandwidth x2"), std::string::npos);
  const Json page = Json::parse(written(ddp_page(r), PageFormat::json));
  EXPECT_EQ(page["rows"][0]["link"], "modelled");
  EXPECT_NEAR(page["rows"][1]["speedup_over_naive"].get<double>(), 1.15, 1e-9);
  EXPECT_NEAR(page["bucket"]["predicted_mb"].get<double>(), 0.0028284, 1e-6);
  EXPECT_EQ(page["rows"][1]["ledger"]["entries"].size(), 2u);
  const auto pair = ddp_pair(r);
  ASSERT_EQ(pair.size(), 2u);
  EXPECT_EQ(pair[1].name, "ddp:bucketed, 0.003 MB");
  BenchDdpReport three = r;  // the form that hides is drawn beside naive, though another is faster
  three.rows.push_back(three.rows.back());
  three.rows.back().form = "overlap";
  EXPECT_EQ(ddp_pair(three).at(1).name.substr(0, 11), "ddp:overlap");
  const Json line = Json::parse(ddp_result_lines(r)[0]);
  EXPECT_EQ(line["command"], "bench ddp");
  EXPECT_EQ(line["link"], "modelled");
  EXPECT_EQ(line["raw_samples"].size(), 4u);
}

TEST(BenchDdp, ARowThatIsWrongIsNotStored) {
  BenchDdpReport r = made_up_ddp();
  r.rows[1].fail_gate("its last loss is 2, that of naive 1");
  EXPECT_EQ(ddp_result_lines(r).size(), 1u);
  EXPECT_NE(written(ddp_page(r), PageFormat::text).find("bucketed is WRONG"), std::string::npos);
}

BenchDdpRequest smallest() {
  BenchDdpRequest r;
  r.size = find_model_size("nano");
  r.size.config.vocab = 67;
  r.forms = {"naive", "flat", "overlap", "bucketed"};
  r.buckets = {0.1, -1};
  r.link = LinkModel{20e-6, 1e9};
  r.batch = 2;
  r.context = 9;
  r.warmups = 1;
  r.steps = 2;
  r.threads = 1;
  r.device = Device::cpu();
  return r;
}

TEST(BenchDdp, RunsEveryForm) {
  const BenchDdpReport r = bench_ddp(smallest(), [](const std::string&) {});
  ASSERT_EQ(r.rows.size(), 5u);
  for (const DdpRow& row : r.rows) {
    SCOPED_TRACE(row.form);
    EXPECT_EQ(row.gate, Gate::passed) << row.reason;
    EXPECT_EQ(row.run.loss, r.rows[0].run.loss);   // to the bit
    EXPECT_EQ(row.run.timing.samples.size(), 4u);  // of both rounds
    EXPECT_EQ(row.predicted.entries.size(), row.run.ledger.entries.size());
    EXPECT_EQ(static_cast<int64_t>(row.run.volume.all_reduce), r.gradient_bytes);
  }
  EXPECT_TRUE(r.rows[4].automatic);
  EXPECT_NEAR(1e6 * r.rows[4].bucket_mb, r.best.bytes, 1e-6);
  EXPECT_EQ(r.rows[1].calls, 1u);
  EXPECT_EQ(r.rows[0].calls, r.rows[2].calls);
  EXPECT_GT(r.rows[0].calls, r.rows[3].calls);
  // Predictions begin with a step that ran, of its slowest rank.
  const std::vector<double>& alone = r.compute.samples;
  EXPECT_NE(std::find(alone.begin(), alone.end(), r.timeline.end / 1e6), alone.end());
  for (const DdpRow& row : r.rows) EXPECT_GT(row.predicted.end, r.timeline.end) << row.form;
}

TEST(BenchDdp, RefusesInOneLine) {
  BenchDdpRequest r = smallest();
  r.batch = 3;
  EXPECT_THROW(check_bench_ddp(r), Error);
  r = smallest();
  r.device = Device::meta();
  EXPECT_THROW(check_bench_ddp(r), Error);
  r = smallest();
  r.batch = 2'000'000;  // refused from what is predicted: to start it takes the machine's memory
  try {
    bench_ddp(r, [](const std::string& line) { FAIL() << "began " << line; });
    FAIL() << "terabytes";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("of memory on each of 2 ranks"), std::string::npos) << e.what();
  }
  const TempFolder folder;
  r = smallest();
  r.link.reset();
  r.forms = {"bucketed"};
  r.buckets = {-1};
  r.out = folder / "nothing";
  try {
    bench_ddp(r, [](const std::string&) {});
    FAIL() << "auto without a link";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unavailable);
    EXPECT_NE(e.hint().find("kiln bench allreduce --ranks 2 --transport threads"), std::string::npos);
  }
}

// 1e6 parameters in fp32 are 4 MB; 2 ranks, 100 us of latency and 200 MB/s: o = 200 us, w = 200 MB/s, and
// sqrt(4e6 x 200e6 x 200e-6) = 0.4 MB.
TEST(AutoBucket, IsThatOfTheLink) {
  const TempFolder folder;
  TrainRequest r;
  r.ranks = 2;
  r.run = folder / "run";
  r.results = folder / "elsewhere";
  EXPECT_THROW(auto_bucket(r, 1000000), Error);
  r.link = "latency=100us,bandwidth=200MB/s";
  EXPECT_NEAR(auto_bucket(r, 1000000).mb, 0.4, 1e-9);
  r.wire = "bf16";
  EXPECT_NEAR(auto_bucket(r, 2000000).mb, 0.4, 1e-9);
  // Rows next to the run: 1 ms a call and 1 GB/s.
  r.link.clear();
  r.wire = "fp32";
  std::string rows;
  for (const auto& [bytes, ms] : {std::pair{1e6, 2.0}, {1e7, 11.0}})
    rows += Json{{"command", "bench allreduce"},
                 {"gate", "passed"},
                 {"transport", "threads"},
                 {"device", "cpu"},
                 {"ranks", 2},
                 {"link", "local"},
                 {"bytes", bytes},
                 {"p50_ms", ms}}
                .dump() +
            "\n";
  folder.write("results.jsonl", rows);
  EXPECT_NEAR(auto_bucket(r, 1000000).mb, 2, 1e-6);
  r.ranks = 4;
  EXPECT_THROW(auto_bucket(r, 1000000), Error);
}

MemoryStats memory_of(std::size_t param, std::size_t grad, std::size_t optim, std::size_t peak) {
  MemoryStats m;
  m.live[Tag::param] = param << 20;
  m.live[Tag::grad] = grad << 20;
  m.live[Tag::optim] = optim << 20;
  m.peak_total = peak << 20;
  return m;
}

// 2^20 parameters in fp32: 4 MiB of weights, 4 of gradients, 8 of moments.
BenchZeroReport made_up_zero() {
  BenchZeroReport r;
  r.device = "cpu";
  r.request.size = find_model_size("nano");
  r.request.stages = {"0", "1"};
  r.request.ranks = {2};
  r.request.link = LinkModel{0, 0x1p30};
  r.parameters = 1 << 20;
  const auto entry = [](const char* what, int64_t bytes, bool bucket) {
    LedgerEntry e;
    e.collective = what;
    e.bytes = bytes;
    e.bucket = bucket;
    return e;
  };
  const PrecisionPolicy fp32 = policy_of(Precision::fp32);
  ZeroRow& whole = r.rows.emplace_back();
  whole.stage = "0";
  whole.ranks = 2;
  whole.theory = zero_theory("0", fp32, r.parameters, 2);
  whole.planned.memory.after_init = memory_of(4, 4, 8, 16);
  whole.planned.memory.before_step = memory_of(4, 4, 8, 21);
  whole.planned.memory.after_step = memory_of(4, 4, 8, 22);
  whole.planned.ledger.entries = {entry("all_reduce", 4 << 20, true), entry("all_reduce", 16, false)};
  whole.planned.here = true;
  whole.measured = whole.planned;
  whole.measured->timing = timing_of_us(10000);
  whole.compute = 5e-3;
  ZeroRow& sharded = r.rows.emplace_back();
  sharded.stage = "1";
  sharded.ranks = 2;
  sharded.theory = zero_theory("1", fp32, r.parameters, 2);
  sharded.planned.memory.after_init = memory_of(4, 4, 4, 12);
  sharded.planned.memory.before_step = memory_of(4, 4, 4, 18);
  sharded.planned.memory.after_step = memory_of(4, 4, 4, 19);
  sharded.planned.ledger.entries = {entry("reduce_scatter", 4 << 20, true),
                                    entry("all_gather", 2 << 20, false)};
  sharded.not_measured = "no room";
  sharded.set(RowStatus::modelled, "no room");
  return r;
}

TEST(BenchZero, MemoryTableHasMeasuredPredictedAndTheory) {
  BenchZeroReport r = made_up_zero();
  const auto has = [&](const std::string& line) {
    const std::string text = written(zero_page(r), PageFormat::markdown);
    EXPECT_NE(text.find(line), std::string::npos) << text;
  };
  has("| 0 | measured | 2 | 16.00 | 21.00 | 22.00 | 22 | 16 | 16 | 16 | 0 % |");
  has("| 1 | predicted | 2 | 12.00 | 18.00 | 19.00 | 19 | - | 12 | 12 | 25 % |");
  has("| 1 | 2 | 4.00 | 0.00 | 4.00 | 4.00 |");
  r.rows[1].planned.memory.after_step = memory_of(4, 4, 6, 19);
  has("| 1 | predicted | 2 | 12.00 | 18.00 | 19.00 | 19 | - | 14 | 12 | 12 % |");
  const std::string csv = written(zero_page(r), PageFormat::csv);
  ASSERT_EQ(lines_of(csv).size(), 3u);
  EXPECT_EQ(picked(csv, 2, {"stage", "status", "ranks", "predicted_state_bytes", "state_saved"}),
            "1 modelled 2 14680064 0.125");
}

// Whole weights go to ranks, so that one has more of the moments than the others, and not always the first.
TEST(BenchZero, MemoryIsThatOfTheRankThatNeedsMost) {
  BenchZeroRequest r;
  r.size = find_model_size("nano");
  r.size.config.vocab = 67;
  r.stages = {"1:simple", "1"};
  r.context = 9;
  r.warmups = 1;
  r.steps = 2;
  r.threads = 1;
  r.device = Device::cpu();
  const MakeRankStrategy make = strategy_maker("zero1:simple", {r.bucket_mb, DType::f32});
  const auto peak = [](const RanksTiming& t) { return t.memory.after_step.peak_total; };
  RanksTiming largest, first;
  int ranks = 1;
  while (largest.memory_rank == 0 && ++ranks <= 8) {
    const RanksWork work = work_of(r, ranks, r.batch);
    largest = plan_ranks(work, make, /*uneven=*/true);
    first = plan_ranks(work, make);
  }
  ASSERT_LE(ranks, 8) << "the first rank always needs most, so this would show nothing";
  EXPECT_GT(peak(largest), peak(first));
  r.ranks = {ranks};
  const BenchZeroReport report = bench_zero(r, [](const std::string&) {});
  const ZeroRow& row = report.rows[0];
  ASSERT_TRUE(row.measured);
  EXPECT_EQ(row.measured->memory_rank, largest.memory_rank);
  EXPECT_EQ(peak(*row.measured), peak(largest));
  EXPECT_EQ(peak(row.planned), peak(largest));
  EXPECT_EQ(*row.state(), row.predicted_state());
  EXPECT_EQ(peak(*report.rows[1].measured), peak(report.rows[1].planned))
      << "even shards: as the first rank's";
  EXPECT_EQ(row.gate, Gate::passed) << "stage 1 agrees with it";
}

// By itself a run is compared with nothing.
TEST(BenchZero, ASingleStageIsNotVerified) {
  BenchZeroRequest r;
  r.size = find_model_size("nano");
  r.size.config.vocab = 67;
  r.stages = {"0"};
  r.ranks = {2};
  r.context = 9;
  r.warmups = 1;
  r.steps = 2;
  r.threads = 1;
  r.device = Device::cpu();
  const BenchZeroReport report = bench_zero(r, [](const std::string&) {});
  EXPECT_EQ(report.rows[0].status, RowStatus::ok);
  EXPECT_EQ(report.rows[0].gate, Gate::not_verified);
  EXPECT_NE(written(zero_page(report), PageFormat::text).find("not verified"), std::string::npos);
}

TEST(BenchZero, TrafficTableCountsAsThePaperDoes) {
  const BenchZeroReport r = made_up_zero();
  const std::string text = written(zero_page(r), PageFormat::markdown);
  // An all-reduce of 4 MiB between two sends 4 MiB each: at 1 GiB/s 3.906 ms, overlapping 5 ms of compute.
  EXPECT_NE(text.find("| 0 | not verified | 10 | 0 % | 1.00x |"), std::string::npos) << text;
  const Json timed = zero_page(r).rows[0];
  EXPECT_NEAR(timed["predicted_ms"].get<double>(), 5, 1e-4);  // and 16 bytes of scalars
  EXPECT_NEAR(timed["roofline_ms"].get<double>(), 5, 1e-6);
  EXPECT_NE(text.find("| 0 | 2 | 2 P (N-1)/N | 4.00 | 4.00 | 4.00 |"), std::string::npos) << text;
  EXPECT_NE(text.find("| 1 | 2 | 2 P (N-1)/N | modelled | 4.00 | 4.00 |"), std::string::npos) << text;
  EXPECT_NE(text.find("stage 1 of 2 ranks: no room"), std::string::npos);
  const Json page = Json::parse(written(zero_page(r), PageFormat::json));
  EXPECT_EQ(page["rows"][1]["status"], "modelled");
  EXPECT_EQ(page["rows"][0]["state_bytes"].get<double>(), 16 << 20);
  EXPECT_NEAR(page["rows"][1]["state_saved"].get<double>(), 0.25, 1e-9);
  const std::vector<NamedChart> charts = zero_charts(r);
  ASSERT_EQ(charts.size(), 3u);  // the last: steps that were measured, as lanes
  EXPECT_NE(charts[2].svg.find("stage 0, 2 ranks"), std::string::npos);
  EXPECT_EQ(charts[2].svg.find("stage 1, 2 ranks"), std::string::npos);
}

TEST(BenchZero, MeasuredIsPredictedToTheByteAndNearTheory) {
  BenchZeroRequest r;
  r.size = find_model_size("nano");
  r.size.config.vocab = 67;
  r.stages = {"0", "1:simple", "1", "2"};
  r.ranks = {1, 2};
  r.bucket_mb = 0.1;
  r.context = 9;
  r.warmups = 2;
  r.steps = 1;
  r.threads = 1;
  r.device = Device::cpu();
  const BenchZeroReport report = bench_zero(r, [](const std::string&) {});
  ASSERT_EQ(report.rows.size(), 8u);
  for (const ZeroRow& row : report.rows) {
    SCOPED_TRACE(cat("stage ", row.stage, " of ", row.ranks));
    ASSERT_TRUE(row.measured) << row.not_measured;
    const auto same = [](const MemoryStats& a, const MemoryStats& b) {
      EXPECT_EQ(a.peak_total, b.peak_total);
      EXPECT_EQ(a.live_total, b.live_total);
    };
    same(row.measured->memory.after_init, row.planned.memory.after_init);
    same(row.measured->memory.before_step, row.planned.memory.before_step);
    same(row.measured->memory.after_step, row.planned.memory.after_step);
    EXPECT_DOUBLE_EQ(sent_bytes(row.measured->ledger, row.ranks), sent_bytes(row.planned.ledger, row.ranks));
    if (row.ranks > 1) {
      EXPECT_NEAR(sent_bytes(row.planned.ledger, row.ranks) / row.theory.sent, 1, 0.02);
    }
    EXPECT_NEAR(*row.state() / row.theory.state(), 1, 0.02);
  }
}

TEST(BenchParallel, ALossThatIsAnotherFailsTheGate) {
  RanksTiming first, run;
  first.loss = 5;
  RowOutcome of_first, of_run;
  run.loss = std::nan("");
  compare_losses({of_run, run}, {of_first, first}, "stage 0");
  EXPECT_EQ(of_run.gate, Gate::failed);
  run.loss = 5.006;
  compare_losses({of_run, run}, {of_first, first}, "stage 0");
  EXPECT_EQ(of_run.status, RowStatus::failed);
  EXPECT_EQ(of_run.reason, "its last loss is 5.006, that of stage 0 5");
  EXPECT_EQ(of_first.gate, Gate::not_verified) << "none agrees with it";
  run.loss = 5.004;
  RowOutcome agrees;
  compare_losses({agrees, run}, {of_first, first}, "stage 0");
  EXPECT_EQ(agrees.gate, Gate::passed);
  EXPECT_EQ(of_first.gate, Gate::passed);
  EXPECT_EQ(agrees.status, RowStatus::ok);
}

}  // namespace
}  // namespace kiln::cli
