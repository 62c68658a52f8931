// Gathers that come in time and gathers that do not, on steps whose answers are worked out by hand. Two
// ranks, no latency, 100 bytes a us: a weight of b bytes takes b/200 us, each rank bringing half of it.
#include "perf/comm/gather_ledger.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

CallSeconds seconds() { return seconds_on({0, 100e6}, 2); }

// Four weights that take 10 us each to gather and 8, 15, 15, 15 us to use.
std::vector<GatherWindowTime> four() {
  return {{"embed", "forward", 2000, 8},
          {"model.layers.0.attn", "forward", 2000, 15},
          {"model.layers.0.mlp", "forward", 2000, 15},
          {"model.layers.1.attn", "forward", 2000, 15}};
}

TEST(GatherLedger, WithoutPrefetchEveryGatherIsExposed) {
  const GatherReplay r = replay_gathers(four(), 0, 2, seconds());
  EXPECT_NEAR(r.end, 4 * 10 + 8 + 3 * 15, 1e-6);
  EXPECT_NEAR(r.exposed, 40, 1e-6);
  for (const GatherUse& u : r.uses) EXPECT_FALSE(u.in_time() || u.ahead);
}

// One ahead: gathered at 10 and 20; used 10-18, wanted at 18, waits 2 us until 20, used 20-35. The third
// starts at 18, when the first is done with, behind the second's gather at 20: ready at 30, 5 us early. The
// fourth starts at 35: ready at 45, wanted at 50.
TEST(GatherLedger, OneAheadHidesWhatComputeCovers) {
  const GatherReplay r = replay_gathers(four(), 1, 2, seconds());
  ASSERT_EQ(r.uses.size(), 4u);
  EXPECT_NEAR(r.uses[0].exposed(), 10, 1e-6);
  EXPECT_NEAR(r.uses[1].exposed(), 2, 1e-6);
  EXPECT_NEAR(r.uses[2].slack(), 5, 1e-6);
  EXPECT_NEAR(r.uses[3].queued, 35, 1e-6);
  EXPECT_NEAR(r.uses[3].slack(), 5, 1e-6);
  EXPECT_NEAR(r.end, 65, 1e-6);
  EXPECT_NEAR(r.exposed, 12, 1e-6);
  EXPECT_NEAR(r.communication, 40, 1e-6);
}

// Backward of two layers, sums of 2000 bytes: 10 us each (half of the bytes leave each rank). One ahead:
// gathers 0-10, 10-20; used 10-25, the sum runs 25-35; used 25-40, its sum 40-50 with the first done at 35.
TEST(GatherLedger, SumsShareTheLink) {
  std::vector<GatherWindowTime> w = {{"a", "backward", 2000, 15, 2000}, {"b", "backward", 2000, 15, 2000}};
  const GatherReplay r = replay_gathers(w, 1, 2, seconds());
  EXPECT_NEAR(r.uses[1].slack(), 5, 1e-6);
  EXPECT_NEAR(r.end, 50, 1e-6);
  EXPECT_NEAR(r.exposed, 20, 1e-6);
  // No overlap: 10 + 15 + 10, twice.
  EXPECT_NEAR(replay_gathers(w, 0, 2, seconds()).end, 70, 1e-6);
}

TEST(GatherLedger, WindowsAreWhatAReplayWasMadeOf) {
  const GatherReplay r = replay_gathers(four(), 1, 2, seconds());
  const auto windows = windows_of(r.uses, r.end);
  ASSERT_EQ(windows.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(windows[i].compute, four()[i].compute, 1e-6) << i;
}

TEST(GatherLedger, LayersAreAddedUp) {
  EXPECT_EQ(layer_of("model.layers.12.self_attn.qkv_proj.weight"), "layers.12");
  EXPECT_EQ(layer_of("lm_head.weight"), "lm_head.weight");
  const GatherReplay r = replay_gathers(four(), 1, 2, seconds());
  const auto rows = by_layer(r.uses);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].layer, "layers.0");
  EXPECT_EQ(rows[1].gathers, 2);
  EXPECT_EQ(rows[1].in_time, 1);
  EXPECT_EQ(rows[1].bytes, 4000);
  EXPECT_NEAR(rows[1].slack, 5, 1e-6);
  EXPECT_NEAR(rows[1].exposed, 2, 1e-6);
}

}  // namespace
}  // namespace kiln
