// Pages of `kiln bench fsdp`, of a made-up report whose figures can be checked by hand, and of runs as small
// as they get.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "perf/comm/prefetch_depth.h"
#include "studies/ranks/fsdp.h"
#include "support/csv_cells.h"

namespace kiln::cli {
namespace {

Timing timing_of_us(double us) { return summarize({us / 1e6, us / 1e6, us / 1e6, us / 1e6}); }

BenchFsdpRequest smallest() {
  BenchFsdpRequest r;
  r.size = find_model_size("nano");
  r.size.config.vocab = 67;
  r.batch = 2;
  r.context = 9;
  r.warmups = 2;
  r.steps = 2;
  r.threads = 1;
  r.device = Device::cpu();
  return r;
}

TEST(BenchFsdp, TablesSayWhatCameInTime) {
  BenchFsdpReport r;
  r.device = "cpu";
  r.request.size = find_model_size("nano");
  r.request.link = LinkModel{0, 1e9};
  r.compute = timing_of_us(10000);
  FsdpRow& row = r.rows.emplace_back();
  row.prefetch = 1;
  row.run.timing = timing_of_us(12000);
  row.run.ledger.end = 12500;
  row.run.gathers = {{"embed", "forward", 1 << 20, false, 0, 0, 300},
                     {"model.layers.0.mlp", "forward", 1 << 20, true, 10, 900, 640}};
  row.predicted.exposed = 400;
  const std::vector<std::string> keys = {"prefetch",           "p50_ms",          "std_ms",
                                         "communication_ms",   "gathers_in_time", "gathers",
                                         "gathers_exposed_ms", "idle_ms",         "predicted_exposed_ms",
                                         "roofline_ms"};
  EXPECT_EQ(picked(written(fsdp_page(r), PageFormat::csv), 1, keys), "1 12 0 0 1 2 0.3 2.5 0.4 10");
  const std::string text = written(fsdp_page(r), PageFormat::markdown);
  EXPECT_NE(text.find("| 1 of 2 | 0.3 | 2.5 | 0.4 | 10 |"), std::string::npos) << text;
  EXPECT_NE(text.find("| embed | forward | 0 of 1 | 1.00 | - | 300 |"), std::string::npos) << text;
  EXPECT_NE(text.find("| layers.0 | forward | yes | 1.00 | 260 | 0 |"), std::string::npos) << text;
  row.run.gathers[1].ready = 950;
  EXPECT_EQ(picked(written(fsdp_page(r), PageFormat::csv), 1, keys), "1 12 0 0 0 2 0.35 2.5 0.4 10");
}

TEST(BenchFsdp, RunsEveryDepth) {
  BenchFsdpRequest r = smallest();
  r.link = LinkModel{20e-6, 1e9};
  const BenchFsdpReport report = bench_fsdp(r, [](const std::string&) {});
  ASSERT_EQ(report.rows.size(), 3u);
  for (const FsdpRow& row : report.rows) {
    EXPECT_EQ(row.run.loss, report.rows[0].run.loss);
    EXPECT_EQ(row.run.gathers.size(), report.rows[0].run.gathers.size());
    EXPECT_EQ(row.predicted.uses.size(), row.run.gathers.size());
    for (const GatherUse& u : row.run.gathers) {
      EXPECT_EQ(u.ahead && row.prefetch == 0, false);
      EXPECT_LE(u.queued, u.ready);
    }
  }
  r.batch = 3;
  EXPECT_THROW(check_bench_fsdp(r), Error);
}

TEST(BenchFsdp, AutoSaysWhatItChoseAndWhy) {
  BenchFsdpRequest r = smallest();
  r.prefetch = {kAutoPrefetch, 0};
  for (const bool modelled : {true, false}) {
    r.link = modelled ? std::optional(LinkModel{200e-6, 1e8}) : std::nullopt;
    const BenchFsdpReport report = bench_fsdp(r, [](const std::string&) {});
    ASSERT_EQ(report.rows.size(), 2u);
    const FsdpRow& chosen = report.rows[0];
    EXPECT_TRUE(chosen.automatic);
    EXPECT_GE(chosen.prefetch, 0);
    EXPECT_LE(chosen.prefetch, kDeepestPrefetch);
    EXPECT_EQ(chosen.run.loss, report.rows[1].run.loss);
    EXPECT_TRUE(report.predicts());
    EXPECT_EQ(report.link_from.empty(), modelled);
    EXPECT_FALSE(report.rows[1].automatic);
    const Json page = Json::parse(written(fsdp_page(report), PageFormat::json));
    EXPECT_EQ(page.at("rows").at(0).at("automatic"), Json(true));
    EXPECT_TRUE(page.at("rows").at(0).contains("predicted_exposed_ms"));
    const std::string text = written(fsdp_page(report), PageFormat::text);
    EXPECT_NE(text.find(cat("auto chose prefetch ", chosen.prefetch, ": ")), std::string::npos) << text;
    EXPECT_NE(text.find("was predicted to be idle for "), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace kiln::cli
