#include "device/gpu_info.h"

#include <gtest/gtest.h>

#include <string>

#include "device/gpu_code.h"

namespace kiln {
namespace {

TEST(GpuInfo, AbsenceHasAReason) {
  std::string why;
  const auto gpus = list_gpus(&why);
  EXPECT_EQ(gpus.empty(), !why.empty()) << why;
  EXPECT_EQ(list_gpus().size(), gpus.size());
}

TEST(CudaGpuInfo, DescribesTheGpu) {
  std::string why;
  const auto gpus = list_gpus(&why);
  if (gpus.empty()) GTEST_SKIP() << why;
  for (const GpuInfo& gpu : gpus) {
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_GE(gpu.major, 5);
    EXPECT_GT(gpu.sm_count, 0);
    EXPECT_GT(gpu.free_bytes, 0U);
    EXPECT_LE(gpu.free_bytes, gpu.total_bytes);
    EXPECT_GE(gpu.driver_version, 12000);
    EXPECT_GE(gpu.runtime_version, 12000);
  }
}

TEST(GpuCode, OfTheDefaultBuild) {
  constexpr const char* kArchs = "90a-real;80";
  EXPECT_EQ(gpu_code_for(kArchs, 9, 0), GpuCode::machine);
  EXPECT_EQ(gpu_code_for(kArchs, 8, 0), GpuCode::machine);
  EXPECT_EQ(gpu_code_for(kArchs, 8, 9), GpuCode::machine);
  EXPECT_EQ(gpu_code_for(kArchs, 10, 0), GpuCode::ptx);
  EXPECT_EQ(gpu_code_for(kArchs, 7, 5), GpuCode::none);
}

TEST(GpuCode, OfOtherBuilds) {
  EXPECT_EQ(gpu_code_for("90a-real", 10, 0), GpuCode::none);
  EXPECT_EQ(gpu_code_for("86-real", 8, 0), GpuCode::none);
  EXPECT_EQ(gpu_code_for("80-virtual", 8, 6), GpuCode::ptx);
  EXPECT_EQ(gpu_code_for("", 9, 0), GpuCode::none);
  EXPECT_EQ(gpu_code_for("native;;x", 9, 0), GpuCode::none);
}

TEST(GpuCode, ABuildWithoutItSaysHowToGetIt) {
  EXPECT_EQ(how_to_build_for(7, 5), "build with `make cuda CUDA_ARCHS=75`");
  EXPECT_EQ(how_to_build_for(12, 0), "build with `make cuda CUDA_ARCHS=120`");
  EXPECT_NE(how_to_build_for(6, 1).find("too old"), std::string::npos);  // no toolkit of ours compiles for it
  EXPECT_NE(how_to_build_for(7, 0).find("--device cpu"), std::string::npos);
}

}  // namespace
}  // namespace kiln
