// The arithmetic of overlap ledgers, on a step whose answers are worked out by hand:
//
//   forward 0-100, backward 100-300, update 300-350 us; gradients of 1000, 2000 and 1000 bytes, ready at 150,
//   200 and 300; two ranks, 10 us of latency, 100 bytes a us: an all-reduce of b bytes takes 20 + b/100 us.
#include "perf/comm/overlap_replay.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "dist/strategy/ddp.h"
#include "report/export/chrome_trace.h"
#include "studies/ranks/overlap_charts.h"
#include "studies/ranks/overlap_tables.h"

namespace kiln {
namespace {

constexpr LinkModel kLink = {10e-6, 100e6};

ComputeTimeline by_hand() {
  ComputeTimeline c;
  c.backward_begin = 100;
  c.backward_end = 300;
  c.end = 350;
  c.gradients = {{"a", 1000, 0, 150}, {"b", 2000, 1000, 200}, {"c", 1000, 3000, 300}};
  return c;
}

BucketOptions capped(double cap, int in_flight = 2) { return {.cap = cap, .in_flight = in_flight}; }

OverlapLedger run(const BucketOptions& form, const LinkModel& link = kLink) {
  return replay(by_hand(), form, seconds_on(link, 2));
}

void expect_spans(const OverlapLedger& l, const std::vector<TimeSpan>& expected) {
  ASSERT_EQ(l.entries.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(l.entries[i].start, expected[i].begin, 1e-6) << i;
    EXPECT_NEAR(l.entries[i].end, expected[i].end, 1e-6) << i;
  }
}

TEST(Overlap, CoveredCountsEveryMomentOnce) {
  EXPECT_DOUBLE_EQ(covered({{5, 9}, {1, 3}, {2, 4}}, {0, 10}), 7);
  EXPECT_DOUBLE_EQ(covered({{5, 9}, {1, 3}, {2, 4}}, {2.5, 6}), 2.5);
  EXPECT_DOUBLE_EQ(covered({{1, 9}, {2, 3}}, {0, 10}), 8);
  EXPECT_DOUBLE_EQ(covered({}, {0, 10}), 0);
}

TEST(Overlap, NaiveExposesAllOfIt) {
  const OverlapLedger l = run(DdpStrategy::naive());
  expect_spans(l, {{300, 330}, {330, 370}, {370, 400}});
  EXPECT_NEAR(l.end, 450, 1e-6);
  EXPECT_NEAR(totals_of(l).exposed, 100, 1e-6);
  EXPECT_NEAR(totals_of(l).hidden_share(), 0, 1e-9);
  EXPECT_NEAR(l.entries[0].ready, 150, 1e-6);  // long before it is sent
}

TEST(Overlap, FlatPaysForOneCall) {
  const OverlapLedger l = run(DdpStrategy::flat());
  expect_spans(l, {{300, 360}});
  EXPECT_NEAR(l.end, 410, 1e-6);
}

TEST(Overlap, OverlappedHidesAllButTheLast) {
  const OverlapLedger l = run(DdpStrategy::overlap());
  expect_spans(l, {{150, 180}, {200, 240}, {300, 330}});
  EXPECT_NEAR(l.end, 380, 1e-6);
  EXPECT_NEAR(l.entries[0].slack, 120, 1e-6);
  EXPECT_NEAR(l.entries[1].slack, 60, 1e-6);
  EXPECT_EQ(l.entries[2].slack, 0);
  EXPECT_NEAR(l.entries[2].exposed, 30, 1e-6);
  EXPECT_NEAR(totals_of(l).communication, 100, 1e-6);
  EXPECT_NEAR(totals_of(l).hidden_share(), 0.7, 1e-9);
}

TEST(Overlap, BucketsLeaveWhenTheirLastGradientIsThere) {
  const OverlapLedger l = run(capped(3000));
  expect_spans(l, {{200, 250}, {300, 330}});
  EXPECT_EQ(l.entries[0].name, "a and 1 more");
  EXPECT_EQ(l.entries[0].bytes, 3000);
  EXPECT_NEAR(l.entries[0].slack, 50, 1e-6);
  EXPECT_NEAR(communication_alone(by_hand(), capped(3000), seconds_on(kLink, 2)), 80, 1e-6);
}

// One call in flight at most on a link of 10 bytes a us: calls take 120, 220 and 120 us. Backward stands
// still from 200 to 270 for the first and is 70 late; its last gradient is ready at 370 and waits for the
// second until 490.
TEST(Overlap, AFullQueueHoldsBackwardUp) {
  const OverlapLedger l = run(capped(0, 1), {10e-6, 10e6});
  expect_spans(l, {{150, 270}, {270, 490}, {490, 610}});
  EXPECT_NEAR(l.backward_end, 490, 1e-6);
  EXPECT_NEAR(l.end, 660, 1e-6);
  EXPECT_NEAR(l.entries[0].exposed, 70, 1e-6);
  EXPECT_NEAR(l.entries[1].exposed, 120, 1e-6);
  EXPECT_NEAR(totals_of(l).exposed, 310, 1e-6);
  EXPECT_NEAR(totals_of(l).communication, 460, 1e-6);

  const ComputeTimeline back = compute_of(l);  // what it was made of
  EXPECT_NEAR(back.backward_end, 300, 1e-6);
  EXPECT_NEAR(back.end, 350, 1e-6);
  EXPECT_NEAR(back.gradients[1].ready, 200, 1e-6);
  EXPECT_NEAR(back.gradients[2].ready, 300, 1e-6);
}

// A second rank whose first gradient comes at 190 and whose update ends at 400. The first sum begins when
// both have come, and the step has ended when both have.
TEST(Overlap, TheLastRankDecides) {
  ComputeTimeline late = by_hand();
  late.backward_begin = 90;
  late.gradients[0].ready = 190;
  late.end = 400;
  const std::vector<ComputeTimeline> ranks = {by_hand(), late};
  const ComputeTimeline last = last_of(ranks);
  EXPECT_EQ(last.backward_begin, 100);
  EXPECT_EQ(last.gradients[0].ready, 190);
  EXPECT_EQ(last.gradients[1].ready, 200);
  const OverlapLedger l = replay(last, DdpStrategy::overlap(), seconds_on(kLink, 2));
  expect_spans(l, {{190, 220}, {220, 260}, {300, 330}});
  EXPECT_NEAR(l.end, 430, 1e-6);
  late.gradients.pop_back();
  const std::vector<ComputeTimeline> unlike = {by_hand(), late};
  EXPECT_THROW(last_of(unlike), Error);
}

TEST(Overlap, OtherCallsAreStoodStillFor) {
  ComputeTimeline c = by_hand();
  LedgerEntry norm;
  norm.name = "loss and squares";
  norm.collective = "all_reduce";
  norm.bytes = 100;  // 21 us
  norm.bucket = false;
  c.others = {norm};
  const OverlapLedger l = replay(c, DdpStrategy::overlap(), seconds_on(kLink, 2));
  EXPECT_NEAR(l.end, 380 + 21, 1e-6);
  EXPECT_NEAR(l.entries.back().exposed, 21, 1e-6);
  EXPECT_EQ(compute_of(l).others.size(), 1u);
}

TEST(Overlap, WhatIfs) {
  const std::vector<WhatIf> all = what_ifs(by_hand(), capped(1000), kLink, 2);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_NEAR(all[0].ledger.end, 380, 1e-6);  // a tensor above the cap is a bucket by itself
  EXPECT_EQ(all[1].change, "bandwidth x2");
  EXPECT_NEAR(all[1].ledger.end, 350 + 20 + 5, 1e-6);
  EXPECT_EQ(all[2].change, "bucket x4");
  EXPECT_NEAR(all[2].ledger.end, 300 + 60 + 50, 1e-6);
  EXPECT_EQ(what_ifs(by_hand(), DdpStrategy::flat(), kLink, 2).size(), 2u);  // no cap to change

  const TextTable table = what_if_table(all, 400, 350);
  ASSERT_EQ(table.size(), 4u);
  EXPECT_EQ(table[1],
            (std::vector<std::string>{"as it is", "3", "0.400", "0.380", "0.350", "0.100", "0.030", "70 %"}));
  EXPECT_EQ(table[3][3], "0.410");
  EXPECT_EQ(what_if_json(all)[1]["predicted_ms"].get<double>(), all[1].ledger.end / 1e3);
}

TEST(Overlap, LedgerTableSaysSlackOrExposed) {
  const OverlapLedger l = run(DdpStrategy::overlap());
  const TextTable table = ledger_table(l);
  ASSERT_EQ(table.size(), 4u);
  EXPECT_EQ(table[1],
            (std::vector<std::string>{"a", "all_reduce", "1.0", "150", "150", "180", "30", "120", "0"}));
  EXPECT_EQ(table[3],
            (std::vector<std::string>{"c", "all_reduce", "1.0", "300", "300", "330", "30", "-", "30"}));
  const TextTable cut = ledger_table(l, 1);
  ASSERT_EQ(cut.size(), 3u);
  EXPECT_EQ(cut[2], (std::vector<std::string>{"2 more", "", "3.0", "", "200", "330", "70", "", "30"}));
  const auto json = ledger_json(l);
  EXPECT_EQ(json["entries"].size(), 3u);
  EXPECT_NEAR(json["hidden_share"].get<double>(), 0.7, 1e-9);
}

TEST(Overlap, ChartsShowWhatIsExposed) {
  const std::vector<NamedLedger> pair = {{"ddp:naive", run(DdpStrategy::naive())},
                                         {"ddp:overlap", run(DdpStrategy::overlap())}};
  const std::string svg = overlap_svg(pair, "title", "below");
  const auto count = [&](const std::string& text, const std::string& what) {
    std::size_t n = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count(svg, "fill=\"#cc3344\" stroke=\"white\""), 3u + 1u);  // red: exposed
  EXPECT_EQ(count(svg, "fill=\"#ddaa33\" stroke=\"white\""), 3u + 3u);
  EXPECT_NE(svg.find("hidden 70 %"), std::string::npos);
  EXPECT_NE(svg.find("exposed 30 us"), std::string::npos);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));

  const auto trace = Json::parse(chrome_trace(overlap_timeline(pair, "title")));
  std::size_t exposed = 0, ready = 0;
  for (const auto& e : trace["traceEvents"]) {
    exposed += e.value("cat", "") == "exposed";
    ready += e.value("cat", "") == "gradient";
  }
  EXPECT_EQ(exposed, 4u);
  EXPECT_EQ(ready, 6u);
}

}  // namespace
}  // namespace kiln
