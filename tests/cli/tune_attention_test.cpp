// `kiln tune attention` without a GPU: what it lists on meta, which tiles it would choose from given times,
// and that tiles with a wrong result are never among them. On a GPU: that the file says what was measured.
#include "studies/tune/tune_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "studies/tune/render.h"
#include "support/gpu.h"
#include "support/temp_folder.h"
#include "train/run/tuned.h"

namespace kiln::cli {
namespace {

constexpr AttentionCell kCell{4, 12, 512, 64, DType::bf16, true, true};

TuneAttentionRequest request_for(std::vector<AttentionCell> cells, const Device& device) {
  TuneAttentionRequest r;
  r.cells = std::move(cells);
  r.device = device;
  r.clock.flush = 4096;
  r.clock.timing = {.warmups = 1, .min_samples = 5, .max_samples = 5, .min_seconds = 0, .max_seconds = 5};
  return r;
}

const TuneNote kQuiet = [](const std::string&) {};

// The default takes 10 ms; the others what is given.
TunedCell timed_cell(const std::vector<double>& others) {
  TunedCell cell;
  cell.cell = kCell;
  cell.variant = "flash_hopper";
  for (const TileCandidate& c : tile_candidates(cell.variant, kCell.problem())) {
    const std::size_t i = cell.tiles.size();
    if (i > others.size()) break;
    cell.tiles.push_back({.candidate = c, .seconds = i == 0 ? 0.010 : others[i - 1], .error = {}});
  }
  return cell;
}

TEST(TuneAttention, TakesTheFastestThatIsFasterThanTheClocksNoise) {
  TunedCell cell = timed_cell({0.0099, 0.011, 0.012});
  choose_tiles(cell);
  EXPECT_TRUE(cell.tiles[0].chosen);  // 1 % is noise
  EXPECT_EQ(cell.choice()->tiles, cell.tiles[0].candidate.tiles);
  cell = timed_cell({0.009, 0.0085, 0.0086});
  choose_tiles(cell);
  EXPECT_FALSE(cell.tiles[0].chosen || cell.tiles[1].chosen || cell.tiles[3].chosen);
  EXPECT_TRUE(cell.tiles[2].chosen);
  const AttentionChoice choice = *cell.choice();
  EXPECT_EQ(choice.shape, shape_of("flash_hopper", kCell.problem()));
  EXPECT_NEAR(choice.us, 8500, 1e-6);
  EXPECT_NEAR(choice.default_us, 10000, 1e-6);
}

TEST(TuneAttention, NeverTakesTilesWithAWrongResult) {
  TunedCell cell = timed_cell({0.001, 0.005});
  cell.tiles[1].error = "its output is far off";
  cell.tiles[1].seconds.reset();
  choose_tiles(cell);
  EXPECT_FALSE(cell.tiles[1].chosen);
  EXPECT_TRUE(cell.tiles[2].chosen);
  cell.tiles[1].seconds = 0.001;  // even with a time
  choose_tiles(cell);
  EXPECT_TRUE(cell.tiles[2].chosen);
  TuneAttentionReport report;
  report.gpu = "NVIDIA H200";
  report.file = "runs/tune-nvidia-h200.json";
  cell.tiles[1].seconds.reset();
  report.cells = {cell};
  const std::string page = written(tune_attention_page(report), PageFormat::text);
  EXPECT_NE(page.find("error"), std::string::npos) << page;
  EXPECT_NE(page.find("its output is far off"), std::string::npos) << page;
  EXPECT_NE(page.find("2.00x"), std::string::npos) << page;  // 10 ms against 5
  const Json parsed = tune_attention_page(report).json;
  const Json& tiles = parsed["shapes"][0]["tiles"];
  EXPECT_EQ(tiles[1]["error"], "its output is far off");
  EXPECT_EQ(tiles[1]["chosen"], false);
  EXPECT_EQ(tiles[2]["gain"], 2.0);
  EXPECT_EQ(tiles[0]["default"], true);
}

TEST(TuneAttention, ComparesOutputsRowByRow) {
  const std::vector<float> a = {3, 4, 100, 0};
  EXPECT_EQ(worst_row_difference(a, a, 2), 0);
  EXPECT_NEAR(worst_row_difference({3, 4.5f, 100, 0}, a, 2), 0.1,
              1e-9);  // half of 5: the large row hides nothing
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(worst_row_difference({nan, 4, 100, 0}, a, 2), std::numeric_limits<double>::infinity());
  EXPECT_EQ(worst_row_difference({3, 4, 100, 0}, {3, 4, nan, 0}, 2), std::numeric_limits<double>::infinity());
  EXPECT_EQ(worst_row_difference({nan, 4, 5, 6}, {nan, 4, 5, 6}, 2), 0);
  EXPECT_EQ(worst_row_difference({1, 0, 5, 6}, {0, 0, 5, 6}, 2), std::numeric_limits<double>::infinity());
}

TEST(TuneAttention, OnMetaListsTheTilesAndWritesNothing) {
  const TempFolder folder;
  const AttentionCell wide{1, 2, 512, 256, DType::bf16, true, false};
  const TuneAttentionReport report = tune_attention(
      request_for({kCell, wide}, Device::meta(DeviceType::cuda)), folder / "out", kQuiet, kQuiet);
  ASSERT_EQ(report.cells.size(), 2u);
  EXPECT_EQ(report.cells[0].variant, "flash_hopper");
  EXPECT_EQ(report.cells[0].tiles.size(), tile_candidates("flash_hopper", kCell.problem()).size());
  EXPECT_TRUE(report.cells[1].tiles.empty());
  EXPECT_NE(report.cells[1].reason.find("no tiles to choose"), std::string::npos) << report.cells[1].reason;
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  const Json page = tune_attention_page(report).json;
  EXPECT_GT(page["shapes"][0]["tiles"][0]["shared_bytes"], 80 * 1024);
  EXPECT_FALSE(page["shapes"][0]["tiles"][0].contains("ms"));
  EXPECT_FALSE(page.contains("file"));
}

TEST(TuneAttention, HasNothingToDoOnTheCpu) {
  const TempFolder folder;
  for (const Device& device : {Device::cpu(), Device::meta()}) {
    const std::string said =
        KILN_ERROR_OF(tune_attention(request_for({kCell}, device), folder / "out", kQuiet, kQuiet));
    EXPECT_NE(said.find("nothing to tune on"), std::string::npos) << said;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(Tuning, TilesOfAnotherKilnAreLeftByAutoAndRefusedByName) {
  const TunePlace here{"NVIDIA H200", 130100};
  const TempFolder folder;
  std::vector<std::string> lines;
  const Say say = [&](const std::string& line) { lines.push_back(line); };
  TuneFile file{here, "build", {{"16x16x8 bf16", "0a", 1, 2}}};
  const AttentionShape shape = shape_of("flash_hopper", kCell.problem());
  file.attention = {{shape, {192, 96, 2}, 1, 2}};
  const std::string path = folder / "tune-nvidia-h200.json";
  write_tune_file(path, file);
  const auto found = find_tuning("auto", folder.path(), here, say);
  ASSERT_TRUE(found);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("1 shapes of attention"), std::string::npos) << lines[0];
  RankContext ctx;
  use_tuning(ctx, *found);
  EXPECT_EQ(chosen_tiles(ctx.attention_choices(), "flash_hopper", kCell.problem()),
            (AttentionTiles{192, 96, 2}));

  file.attention[0].tiles.keys = 80;
  write_tune_file(path, file);
  const auto rest = find_tuning("auto", folder.path(), here, say);  // the GEMM choices still hold
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->choices.size(), 1u);
  EXPECT_TRUE(rest->attention.empty());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[1].find("tiles for 1 shapes of attention are not in this kiln"), std::string::npos)
      << lines[1];
  EXPECT_NE(KILN_ERROR_OF(find_tuning(path, "", here, say)).find("192 x 80"), std::string::npos);
  // Measuring again keeps what still holds.
  const TuneFile kept = earlier_choices(path, here, say);
  EXPECT_EQ(kept.choices.size(), 1u);
  EXPECT_TRUE(kept.attention.empty());
}

TEST(CudaTuneAttention, WritesWhatItMeasured) {
  KILN_NEEDS_GPU();
  const TempFolder folder;
  const AttentionCell cell{2, 3, 300, 64, DType::bf16, true, false};
  const TuneAttentionReport report =
      tune_attention(request_for({cell, kCell}, Device::cuda()), folder.path(), kQuiet, kQuiet);
  const TuneFile file = read_tune_file(report.file);
  EXPECT_EQ(file.place.gpu, report.gpu);
  ASSERT_EQ(file.attention.size(), report.cells.size());
  EXPECT_EQ(report.choices, file.attention.size());
  for (const TunedCell& tuned : report.cells) {
    SCOPED_TRACE(tuned.cell.str());
    EXPECT_EQ(tuned.reason, "");
    for (const TunedTiles& t : tuned.tiles) {
      EXPECT_EQ(t.error, "") << t.candidate.tiles.str();
      EXPECT_TRUE(t.seconds.has_value());
    }
    ASSERT_TRUE(tuned.choice());
    AttentionChoices choices;
    choices.use(file.attention);
    EXPECT_EQ(chosen_tiles(choices, tuned.variant, tuned.cell.problem()), tuned.choice()->tiles);
  }
  ASSERT_TRUE(find_tuning("auto", folder.path(), tune_place(Device::cuda()), kQuiet));
}

}  // namespace
}  // namespace kiln::cli
