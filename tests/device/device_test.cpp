#include "device/device.h"

#include <gtest/gtest.h>

#include <string>

#include "base/build_info.h"
#include "base/error.h"
#include "device/gpu_code.h"
#include "device/gpu_info.h"

namespace kiln {
namespace {

TEST(Device, ParsesEverySpellingAndPrintsItBack) {
  EXPECT_EQ(Device::parse("cpu"), Device::cpu());
  EXPECT_EQ(Device::parse("cuda"), Device::cuda(0));
  EXPECT_EQ(Device::parse("cuda:0"), Device::cuda(0));
  EXPECT_EQ(Device::parse("cuda:7"), Device::cuda(7));
  EXPECT_EQ(Device::parse("cuda:127"), Device::cuda(127));
  EXPECT_EQ(Device::parse("meta"), Device::meta());
  EXPECT_EQ(Device::parse("meta:cpu"), Device::meta());
  EXPECT_EQ(Device::parse("meta:cuda"), Device::meta(DeviceType::cuda));
  for (const char* text : {"cpu", "cuda:0", "cuda:12", "meta", "meta:cuda"})
    EXPECT_EQ(Device::parse(text).str(), text);
}

TEST(Device, AutoIsTheFirstGpuThisBuildCanUse) {
  Device wanted = Device::cpu();
  for (const GpuInfo& gpu : list_gpus()) {
    if (wanted == Device::cpu() &&
        gpu_code_for(build_info().cuda_archs, gpu.major, gpu.minor) != GpuCode::none)
      wanted = Device::cuda(gpu.index);
  }
  EXPECT_EQ(Device::parse("auto"), wanted);
}

TEST(Device, MetaKnowsWhatItImitates) {
  EXPECT_TRUE(Device::meta().is_meta());
  EXPECT_FALSE(Device::cpu().is_meta());
  EXPECT_EQ(Device::meta(DeviceType::cuda).target, DeviceType::cuda);
  EXPECT_EQ(Device::cuda(1).target, DeviceType::cuda);
  EXPECT_NE(Device::meta(), Device::meta(DeviceType::cuda));
  EXPECT_NE(Device::cuda(0), Device::cuda(1));
}

TEST(Device, BadSpellingsAreUsageErrorsThatListTheGoodOnes) {
  for (const char* text :
       {"", " ", "CPU ", "gpu", "cuda:", "cuda:-1", "cuda:+1", "cuda: 1", "cuda:1 ", "cuda:1x", "cuda:10000",
        "cuda:99999999999999999999", "meta:", "meta:meta", "meta:cuda:0", "cpu:0", "auto:0", "cuda1"}) {
    try {
      const Device d = Device::parse(text);
      FAIL() << "'" << text << "' was read as " << d.str();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage) << text;
      EXPECT_NE(std::string(e.what()).find(std::string("'") + text + "'"), std::string::npos) << e.what();
      EXPECT_NE(e.hint().find("cpu, cuda, cuda:N, meta, meta:cuda, auto"), std::string::npos) << e.hint();
    }
  }
}

TEST(Device, ASlipNamesTheNearestSpelling) {
  const std::pair<const char*, const char*> slips[] = {{"cdua", "'cuda'"},
                                                       {"CUDA", "'cuda'"},
                                                       {"cp", "'cpu'"},
                                                       {"mata", "'meta'"},
                                                       {"meta:cud", "'meta:cuda'"}};
  for (const auto& [text, nearest] : slips) {
    try {
      Device::parse(text);
      FAIL() << text;
    } catch (const Error& e) {
      EXPECT_NE(e.hint().find(std::string("did you mean ") + nearest), std::string::npos) << e.hint();
    }
  }
}

TEST(GpuCode, TheNewestThatRunsIsNamed) {
  EXPECT_EQ(newest_code_for("90a-real;80", 9, 0), 91);  // tied to this very GPU
  EXPECT_EQ(newest_code_for("90a-real;80", 8, 6), 80);
  EXPECT_EQ(newest_code_for("90a-real;80", 12, 0), 80);  // by PTX
  EXPECT_EQ(newest_code_for("90", 9, 0), 90);
  EXPECT_EQ(newest_code_for("75", 8, 6), 75);
  EXPECT_EQ(newest_code_for("75;80-virtual", 7, 5), 75);
  EXPECT_EQ(newest_code_for("90a-real;80", 7, 5), 0);
}

}  // namespace
}  // namespace kiln
