// Stored files of kiln tune are still read, value by value; README.md of this folder says why.
#include <gtest/gtest.h>

#include <iterator>
#include <string>

#include "tune/tune_file.h"

namespace kiln {
namespace {

TuneFile golden(const std::string& name) {
  return read_tune_file(std::string(KILN_TESTS_FOLDER "/goldens/tune/") + name);
}

void expect_place(const TuneFile& file) {
  EXPECT_EQ(file.place.gpu, "NVIDIA H200");
  EXPECT_EQ(file.place.cublaslt, 130100u);
  EXPECT_EQ(file.build, "a15ffe7");
}

TEST(TuneFileGolden, Matmuls) {
  const TuneFile file = golden("gemm.json");
  expect_place(file);
  ASSERT_EQ(file.choices.size(), 2u);
  EXPECT_EQ(file.choices[0].problem,
            "2048x2304x768 bf16*bf16T->bf16 strides 768,768,2304 align 16,16,16 workspace 33554432");
  EXPECT_EQ(file.choices[0].algorithm, "42000000000000001a03000000000000ff10");
  EXPECT_EQ(file.choices[0].us, 11.5);
  EXPECT_EQ(file.choices[0].default_us, 13.25);
  EXPECT_EQ(file.choices[1].problem,
            "768x768x2048 bf16T*bf16+>fp32 strides 768,768,768 align 16,16,16 workspace 33554432");
  EXPECT_EQ(file.choices[1].algorithm, "0a");
  EXPECT_EQ(file.choices[1].us, 9);
  EXPECT_EQ(file.choices[1].default_us, 9);
  EXPECT_TRUE(file.attention.empty());
}

TEST(TuneFileGolden, TilesOfAttention) {
  const TuneFile file = golden("attention.json");
  expect_place(file);
  ASSERT_EQ(file.choices.size(), 1u);
  EXPECT_EQ(file.choices[0].us, 40.25);
  const AttentionChoice expected[] = {
      {{"flash", 1, 8, 2, 77, 99, 80, DType::f16, false}, {64, 64, 2}, 11.5, 12.5},
      {{"flash", 8, 1, 1, 1024, 1024, 32, DType::bf16, true}, {128, 64, 2}, 250.125, 251},
      {{"flash_hopper", 4, 12, 12, 512, 512, 64, DType::bf16, true}, {64, 128, 2}, 20, 21}};
  ASSERT_EQ(file.attention.size(), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_EQ(file.attention[i].shape, expected[i].shape) << file.attention[i].shape.str();
    EXPECT_EQ(file.attention[i].tiles, expected[i].tiles) << file.attention[i].tiles.str();
    EXPECT_EQ(file.attention[i].us, expected[i].us);
    EXPECT_EQ(file.attention[i].default_us, expected[i].default_us);
  }
}

}  // namespace
}  // namespace kiln
