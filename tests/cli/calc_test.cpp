// kiln calc: figures that can be checked by hand, and stored rows to compare with.
#include "studies/calc/calc.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "support/temp_folder.h"

namespace kiln::cli {
namespace {

Json all_reduce_row(const char* algorithm, int ranks, double bytes, double ms) {
  return {{"command", "bench allreduce"},
          {"gate", "passed"},
          {"transport", "threads"},
          {"device", "cpu"},
          {"dtype", "fp32"},
          {"link", "local"},
          {"algorithm", algorithm},
          {"ranks", ranks},
          {"bytes", bytes},
          {"p50_ms", ms}};
}

RingRequest ring_request() {
  RingRequest q;
  q.place.folder = "runs";
  q.sizes = {Bytes{8'000'000}};
  q.ranks = {4};
  return q;
}

const RingRow& row_of(const RingReport& report, const std::string& collective) {
  for (const RingRow& r : report.rows) {
    if (r.collective == collective) return r;
  }
  throw Error("no such row");
}

TEST(CalcRing, CostsOnAGivenLink) {
  RingRequest q = ring_request();
  q.link = LinkModel{10e-6, 1e9};
  const RingReport report = calc_ring(q, {});
  ASSERT_EQ(report.rows.size(), 4u);
  // 8 MB, 4 ranks: 3 steps of 2 MB, 6 of 2 MB, and 3 of 8 MB.
  EXPECT_NEAR(row_of(report, "all_gather").predicted, 3 * (10e-6 + 2e-3), 1e-12);
  EXPECT_NEAR(row_of(report, "reduce_scatter").predicted, 3 * (10e-6 + 2e-3), 1e-12);
  EXPECT_NEAR(row_of(report, "all_reduce").predicted, 6 * (10e-6 + 2e-3), 1e-12);
  EXPECT_NEAR(row_of(report, "alternate").predicted, 3 * (10e-6 + 8e-3), 1e-12);
  EXPECT_NEAR(row_of(report, "all_reduce").floor, 12e-3, 1e-12);
  EXPECT_NEAR(row_of(report, "alternate").floor, 12e-3, 1e-12);
  EXPECT_NEAR(row_of(report, "all_gather").floor, 6e-3, 1e-12);
  EXPECT_EQ(row_of(report, "all_reduce").sent, 12e6);
  EXPECT_EQ(row_of(report, "alternate").sent, 24e6);
  EXPECT_FALSE(row_of(report, "all_reduce").achieved);
}

// Times of a ring of 10 us and 1 GB/s: the fit finds the link again, and predicts the alternative algorithm.
TEST(CalcRing, FitsTheLinkFromStoredRows) {
  std::vector<Json> rows;
  for (const double bytes : {1e4, 1e6, 8e6})
    rows.push_back(all_reduce_row("ring", 4, bytes, 1e3 * 6 * (10e-6 + bytes / 4e9)));
  rows.push_back(all_reduce_row("alternate", 4, 8e6, 30));
  rows.push_back(all_reduce_row("alternate", 2, 8e6, 1));  // of other ranks
  const RingReport report = calc_ring(ring_request(), rows);
  ASSERT_EQ(report.links.size(), 1u);
  EXPECT_NEAR(report.links[0].second.latency, 10e-6, 1e-9);
  EXPECT_NEAR(report.links[0].second.bandwidth, 1e9, 1e4);
  EXPECT_NEAR(*row_of(report, "all_reduce").achieved, 12.06e-3, 1e-9);
  EXPECT_NEAR(*row_of(report, "alternate").achieved, 30e-3, 1e-9);
  EXPECT_NEAR(row_of(report, "alternate").predicted, 24.03e-3, 1e-6);
  EXPECT_FALSE(row_of(report, "all_gather").achieved);
  const std::string page = written(ring_page(report), PageFormat::csv);
  EXPECT_NE(page.find("alternate,(N-1) L + (N-1) S/W,4,8000000,2.4e+07,30,24.03,12"), std::string::npos)
      << page;
  const std::string table = written(ring_page(report), PageFormat::markdown);
  EXPECT_NE(table.find("| alternate | (N-1) L + (N-1) S/W | 4 | 8 | 24.0 | 30 | 24.03 | 12 | 0.80 |"),
            std::string::npos)
      << table;
  rows[3]["p50_ms"] = 60.0;
  EXPECT_NE(written(ring_page(calc_ring(ring_request(), rows)), PageFormat::csv), page);
  const Json made = Json::parse(written(ring_page(report), PageFormat::json));
  EXPECT_EQ(made["link"], "fitted");
  EXPECT_NEAR(made["rows"][3]["achieved_ms"].get<double>(), 30, 1e-9);
}

TEST(CalcRing, SaysWhatToMeasureWhereNothingIsKnown) {
  const std::string said = KILN_ERROR_OF(calc_ring(ring_request(), {}));
  EXPECT_NE(said.find("nothing is known of a ring of 4 ranks on threads"), std::string::npos) << said;
  EXPECT_NE(said.find("--algorithm ring,alternate"), std::string::npos) << said;
}

BucketRequest bucket_request() {
  BucketRequest q;
  q.place.folder = "runs";
  q.bytes = 400e6;
  q.cost = SumCost{1e9, 100e-6};
  q.bucket_mb = {1, 10, 100, 1000};
  return q;
}

Json ddp_row(double bucket_mb, double p50_ms) {
  return {{"command", "bench ddp"}, {"form", "bucketed"}, {"gate", "passed"},  {"transport", "threads"},
          {"device", "cpu"},        {"ranks", 2},         {"link", "none"},    {"gradient_bytes", 400e6},
          {"bucket_mb", bucket_mb}, {"p50_ms", p50_ms},   {"compute_ms", 50.0}};
}

// sqrt(400e6 * 1e9 * 1e-4) = 6.32 MB; 63.2 of them cost 6.32 ms for the last and 6.32 ms of calls.
TEST(CalcBucket, TheBestAndWhatOthersCost) {
  const BucketReport report = calc_bucket(bucket_request(), {});
  EXPECT_NEAR(report.best.bytes, 6.3246e6, 1e2);
  EXPECT_NEAR(report.best.n, 63.246, 1e-2);
  EXPECT_NEAR(report.best.overhead, 12.649e-3, 1e-6);
  ASSERT_EQ(report.rows.size(), 5u);
  EXPECT_NEAR(report.rows[0].predicted, 1e-3 + 400 * 100e-6, 1e-9);
  EXPECT_TRUE(report.rows[1].best);
  EXPECT_NEAR(report.rows[2].predicted, 10e-3 + 40 * 100e-6, 1e-9);
  EXPECT_NEAR(report.rows[4].n, 1, 1e-9);  // 1000 MB hold all of it
  EXPECT_NEAR(report.rows[4].predicted, 400.1e-3, 1e-9);
  EXPECT_EQ(report.fastest(), nullptr);
  const std::string page = written(bucket_page(report), PageFormat::text);
  EXPECT_NE(page.find("best: 6.32 MB, 63.2 of them"), std::string::npos) << page;
  EXPECT_NE(page.find("runs has no step of bench ddp"), std::string::npos) << page;
}

TEST(CalcBucket, StoredStepsStandBesideIt) {
  std::vector<Json> rows = {ddp_row(1, 95), ddp_row(10, 65), ddp_row(100, 155)};
  Json modelled = ddp_row(10, 51);
  modelled["link"] = "modelled";
  modelled["link_model"] = "latency=1us,bandwidth=1GB/s";
  rows.push_back(modelled);  // of a link that was not requested
  Json other = ddp_row(10, 51);
  other["gradient_bytes"] = 300e6;
  rows.push_back(other);
  const BucketReport report = calc_bucket(bucket_request(), rows);
  ASSERT_TRUE(report.rows[0].achieved);
  EXPECT_NEAR(*report.rows[0].achieved, 45e-3, 1e-12);
  EXPECT_FALSE(report.rows[1].achieved);  // the best itself was not run
  EXPECT_NEAR(*report.rows[2].achieved, 15e-3, 1e-12);
  ASSERT_NE(report.fastest(), nullptr);
  EXPECT_EQ(report.fastest()->bucket, 10e6);
  EXPECT_EQ(Json::parse(written(bucket_page(report), PageFormat::json))["measured_mb"], 10.0);
  BucketRequest q = bucket_request();
  q.cost.reset();
  q.link = LinkModel{1e-6, 1e9};
  const BucketReport by_link = calc_bucket(q, rows);
  EXPECT_NEAR(by_link.cost.o, 2e-6, 1e-12);
  for (const BucketRow& r : by_link.rows)
    EXPECT_EQ(r.achieved.has_value(), std::abs(r.bucket - 10e6) < 1) << r.bucket;
}

TEST(CalcBucket, AStepShorterThanItsComputeIsNoise) {
  const std::vector<Json> rows = {ddp_row(1, 95), ddp_row(10, 49.5)};
  const StudyPage page = bucket_page(calc_bucket(bucket_request(), rows));
  const std::string text = written(page, PageFormat::text), csv = written(page, PageFormat::csv);
  EXPECT_NE(text.find("-0.5 (noise)"), std::string::npos) << text;
  EXPECT_NE(csv.find(",-0.5,"), std::string::npos) << csv;
  EXPECT_NE(csv.find(",45,"), std::string::npos) << csv;
}

TEST(CalcBucket, WithoutABestOneSomeMustBeNamed) {
  BucketRequest q = bucket_request();
  q.cost = SumCost{1e9, 0};
  EXPECT_EQ(calc_bucket(q, {}).rows.size(), 4u);
  q.bucket_mb.clear();  // as of --bucket-mb auto
  EXPECT_NE(KILN_ERROR_OF(calc_bucket(q, {})).find("no best bucket"), std::string::npos);
  q.cost = SumCost{1e9, 100e-6};
  EXPECT_EQ(calc_bucket(q, {}).rows.size(), 1u);
}

TEST(CalcBucket, TakesTheCostFromStoredSums) {
  BucketRequest q = bucket_request();
  q.cost.reset();
  EXPECT_NE(KILN_ERROR_OF(calc_bucket(q, {})).find("nothing is known of sums between 2 ranks"),
            std::string::npos);
  std::vector<Json> rows;
  for (const double bytes : {1e4, 1e6, 1e8})
    rows.push_back(all_reduce_row("direct", 2, bytes, 1e3 * (100e-6 + bytes / 1e9)));
  const BucketReport report = calc_bucket(q, rows);
  EXPECT_NEAR(report.cost.o, 100e-6, 1e-9);
  EXPECT_NEAR(report.best.bytes, 6.3246e6, 1e3);
}

// One row holds every bucket that is larger than all gradients; rows of an earlier run do not count.
TEST(CalcBucket, LargeBucketsAreOneAndTheNewestRunCounts) {
  BucketRequest q = bucket_request();
  q.bucket_mb = {10, 500, 1000};
  std::vector<Json> rows = {ddp_row(10, 60), ddp_row(500, 450)};
  EXPECT_EQ(calc_bucket(q, rows).rows.size(), 3u);
  EXPECT_NEAR(*calc_bucket(q, rows).rows[2].achieved, 400e-3, 1e-9);
  Json other = ddp_row(500, 455);
  other["batch"] = 64;
  rows.push_back(other);
  const BucketReport report = calc_bucket(q, rows);
  EXPECT_FALSE(report.rows[1].achieved);
  EXPECT_NEAR(*report.rows[2].achieved, 405e-3, 1e-9);
  q.cost = SumCost{1e9, 0};
  EXPECT_NE(written(bucket_page(calc_bucket(q, {})), PageFormat::text).find("the smaller the better"),
            std::string::npos);
  EXPECT_TRUE(Json::parse(written(bucket_page(calc_bucket(q, {})), PageFormat::json))["best_n"].is_null());
}

// Where no device is named, it is that of the newest row that fits; rows of strange types fit nothing.
TEST(CalcBucket, TheDeviceIsThatOfTheRows) {
  BucketRequest q = bucket_request();
  q.cost.reset();
  std::vector<Json> rows;
  for (const double bytes : {1e4, 1e8}) {
    rows.push_back(all_reduce_row("direct", 2, bytes, 1e3 * (100e-6 + bytes / 1e9)));
    rows.back()["device"] = "cuda:0";
  }
  Json skipped = all_reduce_row("direct", 2, 1e6, 1);
  skipped["gate"] = "skipped";
  rows.push_back(skipped);
  Json strange = skipped;
  strange["ranks"] = "two";
  rows.push_back(strange);
  EXPECT_EQ(calc_bucket(q, rows).request.place.device, "cuda:0");
  q.place.device = "cpu";
  const std::string said = KILN_ERROR_OF(calc_bucket(q, rows));
  EXPECT_NE(said.find("2 ranks on threads (cpu)"), std::string::npos) << said;
}

TEST(CalcSavings, FormulaMetaAndStoredPeaks) {
  SavingsRequest q;
  q.place.folder = "runs";
  q.study.size = find_model_size("nano");
  q.ranks = {2, 32};
  const SavingsReport report = calc_savings(q, {});
  const auto p = static_cast<double>(report.parameters);
  ASSERT_EQ(report.rows.size(), 6u);
  EXPECT_EQ(report.rows[0].theory.state(), 16 * p);
  EXPECT_EQ(report.rows[1].theory.state(), 8 * p + 8 * p / 2);
  EXPECT_EQ(report.rows[2].theory.state(), 8 * p);
  EXPECT_EQ(report.rows[5].theory.state(), p / 2);
  EXPECT_NEAR(report.rows[2].predicted_state / (8 * p), 1, 0.02);
  EXPECT_GT(report.rows[5].predicted_peak, report.rows[5].predicted_state);
  EXPECT_FALSE(report.rows[5].achieved_state);
  const std::string text = written(savings_page(report), PageFormat::text);
  EXPECT_NE(text.find("runs has no row of bench zero"), std::string::npos) << text;
  std::vector<Json> rows = {{{"command", "bench zero"},
                             {"gate", "passed"},
                             {"stage", "3"},
                             {"ranks", 2},
                             {"size", "nano"},
                             {"params", report.parameters},
                             {"dtype", "fp32"},
                             {"ctx", 128},
                             {"batch", 2},
                             {"device", "cuda:0"},
                             {"transport", "threads"},
                             {"state_bytes", 1 << 20},
                             {"peak_bytes", 3 << 20}}};
  const SavingsReport measured = calc_savings(q, rows);
  EXPECT_EQ(*measured.rows[2].achieved_state, 1 << 20);
  EXPECT_FALSE(measured.rows[5].achieved_state);
  EXPECT_EQ(measured.request.place.device, "cuda:0");
  EXPECT_NE(measured.rows[2].predicted_peak, report.rows[2].predicted_peak);  // planned for that device
  const Json page = Json::parse(written(savings_page(measured), PageFormat::json));
  EXPECT_EQ(page["rows"][2]["peak_bytes"], 3 << 20);
  EXPECT_EQ(page["rows"][2]["saved"], 0.5);
  EXPECT_EQ(page["device"], "cuda:0");
}

}  // namespace
}  // namespace kiln::cli
