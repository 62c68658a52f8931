// The file of measured choices: written and read back it is the same; what is wrong with one is reported in a
// line; choices of another GPU or library are recognised.
#include "tune/tune_file.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

TuneFile sample() {
  return {{"NVIDIA H200", 130100},
          "3da2c08",
          {{"16x16x8 bf16*bf16->bf16 strides 8,8,16", "00ff", 2.5, 3.75},
           {"32x16x8 bf16*bf16->fp32 strides 8,8,16", "a1b2", 4, 4}}};
}

TuneFile with_attention() {
  TuneFile file = sample();
  file.attention = {{{"flash", 1, 8, 2, 77, 99, 80, DType::f16, false}, {64, 64, 2}, 11.5, 12.5},
                    {{"flash_hopper", 4, 12, 12, 512, 512, 64, DType::bf16, true}, {192, 96, 2}, 20, 21}};
  return file;
}

void expect_same(const TuneFile& a, const TuneFile& b) {
  EXPECT_EQ(a.place, b.place);
  EXPECT_EQ(a.build, b.build);
  ASSERT_EQ(a.choices.size(), b.choices.size());
  for (std::size_t i = 0; i < a.choices.size(); ++i) {
    EXPECT_EQ(a.choices[i].problem, b.choices[i].problem);
    EXPECT_EQ(a.choices[i].algorithm, b.choices[i].algorithm);
    EXPECT_EQ(a.choices[i].us, b.choices[i].us);
    EXPECT_EQ(a.choices[i].default_us, b.choices[i].default_us);
  }
  ASSERT_EQ(a.attention.size(), b.attention.size());
  for (std::size_t i = 0; i < a.attention.size(); ++i) {
    EXPECT_EQ(a.attention[i].shape, b.attention[i].shape) << a.attention[i].shape.str();
    EXPECT_EQ(a.attention[i].tiles, b.attention[i].tiles) << a.attention[i].tiles.str();
    EXPECT_EQ(a.attention[i].us, b.attention[i].us);
    EXPECT_EQ(a.attention[i].default_us, b.attention[i].default_us);
  }
}

TEST(TuneFile, IsTheSameWhenReadBack) {
  const TempFolder folder;
  const std::string path = folder / "tune.json";
  write_tune_file(path, sample());
  expect_same(read_tune_file(path), sample());
  EXPECT_EQ(tune_text(read_tune_file(path)), folder.read("tune.json"));
  TuneFile none = sample();
  none.choices.clear();
  write_tune_file(path, none);
  EXPECT_TRUE(read_tune_file(path).choices.empty());
}

TEST(TuneFile, TilesOfAttentionAreTheSameWhenReadBack) {
  const std::string text = tune_text(with_attention());
  expect_same(parse_tune_file(text, "FILE"), with_attention());
  EXPECT_EQ(tune_text(parse_tune_file(text, "FILE")), text);
  // Files from before there were such choices have no list, and are written without one still.
  EXPECT_EQ(tune_text(sample()).find("attention"), std::string::npos);
  EXPECT_TRUE(parse_tune_file(tune_text(sample()), "FILE").attention.empty());
}

TEST(TuneFile, MergingKeepsOtherShapesOfAttention) {
  TuneFile now{sample().place, "later", {}};
  now.attention = {with_attention().attention[1]};
  now.attention[0].tiles = {128, 64, 2};
  now.attention.push_back(now.attention[0]);
  now.attention[1].shape.causal = false;
  const TuneFile all = merged(with_attention(), now);
  EXPECT_EQ(all.choices.size(), 2u);
  ASSERT_EQ(all.attention.size(), 3u);
  EXPECT_EQ(all.attention[0].tiles, with_attention().attention[0].tiles);
  EXPECT_FALSE(all.attention[1].shape.causal);
  EXPECT_EQ(all.attention[2].tiles, (AttentionTiles{128, 64, 2}));
  EXPECT_EQ(merged(with_attention(), sample()).attention.size(), 2u);  // GEMMs tuned since
}

TEST(TuneFile, MergingKeepsOtherProblemsAndReplacesTheSame) {
  TuneFile now = sample();
  now.build = "later";
  now.choices = {{"32x16x8 bf16*bf16->fp32 strides 8,8,16", "cc", 3, 4}, {"1x1x1 new", "dd", 1, 1}};
  const TuneFile all = merged(sample(), now);
  EXPECT_EQ(all.build, "later");
  ASSERT_EQ(all.choices.size(), 3u);
  EXPECT_EQ(all.choices[0].problem, sample().choices[0].problem);
  EXPECT_EQ(all.choices[1].problem, "1x1x1 new");
  EXPECT_EQ(all.choices[2].algorithm, "cc");
  now.place.cublaslt = 1;
  EXPECT_THROW((void)merged(sample(), now), Error);
}

TEST(TuneFile, WhatIsWrongIsSaidInALineWithTheSource) {
  const auto said = [](std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const std::string line = KILN_ERROR_OF(parse_tune_file(text, "FILE"));
    EXPECT_EQ(line.find("FILE"), 0u) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    return line;
  };
  const std::string good = tune_text(sample());
  EXPECT_NE(said(good, "\"format\": 1", "\"format\": 2").find("this kiln reads 1"), std::string::npos);
  EXPECT_NE(said(good, "00ff", "00fg").find("is no algorithm"), std::string::npos);
  EXPECT_NE(said(good, "00ff", "00f").find("is no algorithm"), std::string::npos);
  EXPECT_NE(said(good, "00ff", "").find("is no algorithm"), std::string::npos);
  EXPECT_NE(said(good, "2.5", "-2.5").find("is no time"), std::string::npos);
  EXPECT_NE(said(good, "2.5", "\"2.5\"").find("us"), std::string::npos);
  EXPECT_NE(said(good, "NVIDIA H200", "").find("is no name"), std::string::npos);
  EXPECT_NE(said(good, "NVIDIA H200", "a\\nb").find("is no name"), std::string::npos);
  EXPECT_NE(said(good, "32x16x8 bf16*bf16->fp32", "16x16x8 bf16*bf16->bf16").find("twice"),
            std::string::npos);
  EXPECT_NE(said(good, "\"default_us\"", "\"defalt_us\"").find("defalt_us"), std::string::npos);
  EXPECT_NE(said(good, "130100", "-1").find("cublaslt"), std::string::npos);
  const std::string tiled = tune_text(with_attention());
  EXPECT_NE(said(tiled, "\"fp16\"", "\"int8\"").find("is no format"), std::string::npos);
  EXPECT_NE(said(tiled, "\"fp16\"", "16").find("dtype"), std::string::npos);
  EXPECT_NE(said(tiled, "\"flash\"", "\"\"").find("is no name"), std::string::npos);
  EXPECT_NE(said(tiled, "\"queries\": 77", "\"queries\": 0").find("queries"), std::string::npos);
  EXPECT_NE(said(tiled, "\"queries\": 77", "\"queries\": 7.5").find("queries"), std::string::npos);
  EXPECT_NE(said(tiled, "\"causal\": false", "\"causal\": 0").find("causal"), std::string::npos);
  EXPECT_NE(said(tiled, "\"keys\": 96", "\"keys\": 100000").find("tiles.keys"), std::string::npos);
  EXPECT_NE(said(tiled, "\"stages\"", "\"stage\"").find("stage"), std::string::npos);
  EXPECT_NE(said(tiled, "11.5", "-11.5").find("is no time"), std::string::npos);
  EXPECT_NE(said(tiled, "\"kv_heads\": 2,", "").find("kv_heads"), std::string::npos);
  EXPECT_NE(said(tiled, "\"attention\"", "\"atention\"").find("atention"), std::string::npos);
  TuneFile twice = with_attention();
  twice.attention.push_back(twice.attention[0]);
  EXPECT_NE(KILN_ERROR_OF(parse_tune_file(tune_text(twice), "FILE")).find("twice"), std::string::npos);
  EXPECT_NE(said(good, "\n}", ",\n\"attention\": null}").find("attention"), std::string::npos);
  for (const std::size_t length : {std::size_t{0}, good.size() / 2, good.size() - 3}) {
    const std::string line = KILN_ERROR_OF(parse_tune_file(good.substr(0, length), "FILE"));
    EXPECT_EQ(line.find("FILE"), 0u) << line;
  }
}

TEST(TuneFile, ABrokenFileComesWithARemedy) {
  const TempFolder folder;
  const std::string path = folder.write("tune.json", "{");
  const std::string line = KILN_ERROR_OF(read_tune_file(path));
  EXPECT_EQ(line.find(path), 0u) << line;
  EXPECT_NE(line.find("run `kiln tune` again"), std::string::npos) << line;
}

TEST(TuneFile, ChoicesOfAnotherGpuOrLibraryDoNotHoldHere) {
  EXPECT_EQ(why_not_here(sample(), {"NVIDIA H200", 130100}, "FILE"), "");
  EXPECT_EQ(why_not_here(sample(), {"NVIDIA A100", 130100}, "FILE"),
            "FILE was measured on NVIDIA H200; this is NVIDIA A100");
  EXPECT_EQ(why_not_here(sample(), {"NVIDIA H200", 130203}, "FILE"),
            "FILE was measured with cuBLASLt 13.1.0; this is 13.2.3");
}

TEST(TuneFile, IsNamedAfterItsGpu) {
  EXPECT_EQ(tune_file_name("NVIDIA H200"), "tune-nvidia-h200.json");
  EXPECT_EQ(tune_file_name("Tesla T4 (16/32 GB)"), "tune-tesla-t4-16-32-gb.json");
  EXPECT_EQ(tune_file_name("../.."), "tune.json");
}

}  // namespace
}  // namespace kiln
