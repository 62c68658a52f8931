#include "train/run/convert.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

void no_progress(uint64_t, uint64_t) {}

TEST(Convert, ThroughShardsAndDtypesAndBack) {
  const TempFolder folder;
  ConvertRequest fresh;
  fresh.fresh.sizes = {"nano"};
  fresh.to = folder / "fresh";
  fresh.seed = 5;
  const ConvertReport first = convert(fresh, no_progress);
  EXPECT_EQ(first.files, 1U);
  EXPECT_EQ(first.bytes, static_cast<uint64_t>(first.parameters) * 4);
  for (const char* name : {"tokenizer.json", "merges.txt", "generation_config.json"})
    folder.write(std::string("fresh/") + name, name);

  ConvertRequest cut;
  cut.from = fresh.to;
  cut.to = folder / "cut";
  cut.save.max_shard_bytes = 20'000;
  cut.save.to = RopeLayout::interleaved;
  const ConvertReport second = convert(cut, no_progress);
  EXPECT_GT(second.files, 4U);
  EXPECT_EQ(second.copied,
            (std::vector<std::string>{"tokenizer.json", "merges.txt", "generation_config.json"}));
  EXPECT_EQ(folder.read("cut/merges.txt"), "merges.txt");

  ConvertRequest back;
  back.from = cut.to;
  back.to = folder / "back";
  back.save.from = RopeLayout::interleaved;
  (void)convert(back, no_progress);
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.json"})
    EXPECT_EQ(folder.read(std::string("fresh/") + name), folder.read(std::string("back/") + name)) << name;

  ConvertRequest half = back;
  half.force = true;
  half.dtype = DType::bf16;
  const ConvertReport third = convert(half, no_progress);
  EXPECT_EQ(third.bytes * 2, first.bytes);
  back.from = half.to;  // as in the source by default
  back.to = folder / "again";
  EXPECT_EQ(convert(back, no_progress).config.dtype, DType::bf16);
  for (const auto& e : fs::directory_iterator(folder.path()))
    EXPECT_FALSE(e.path().string().ends_with(".tmp")) << e.path();
}

TEST(Convert, AConfigMakesAFreshModelOfItsShape) {
  const TempFolder folder;
  HfConfig config;
  config.model.vocab = 33;
  config.model.kv_heads = 2;
  config.model.tied = true;
  config.eos = {7};
  ConvertRequest request;
  request.fresh.model = folder.write("c.json", hf_config_json(config));
  request.to = folder / "out";
  request.dtype = DType::f16;
  (void)convert(request, no_progress);
  const HfFolder out(request.to);
  EXPECT_EQ(out.config().model.vocab, 33);
  EXPECT_TRUE(out.config().model.tied);
  EXPECT_EQ(out.config().eos, std::vector<int64_t>{7});
  EXPECT_EQ(out.type_of(out.weights()[0]), SafetensorsType::f16);
}

TEST(Convert, MistakesLeaveTheTargetAlone) {
  const TempFolder folder;
  ConvertRequest request;
  request.fresh.sizes = {"nano"};
  request.to = folder / "m";
  (void)convert(request, no_progress);
  const std::string before = folder.read("m/model.safetensors");
  request.seed = 1;
  EXPECT_NE(KILN_ERROR_OF(convert(request, no_progress)).find("is not empty"), std::string::npos);
  request.force = true;
  request.fresh.sizes = {"nanno"};
  EXPECT_NE(KILN_ERROR_OF(convert(request, no_progress)).find("did you mean 'nano'?"), std::string::npos);
  request.fresh.sizes = {"nano"};
  const auto stop = [](uint64_t done, uint64_t) {
    if (done > 100'000) throw Error("stopped");
  };
  EXPECT_EQ(KILN_ERROR_OF(convert(request, stop)), "stopped");
  EXPECT_EQ(folder.read("m/model.safetensors"), before);
  EXPECT_FALSE(fs::exists(folder / "m.tmp"));

  // A damaged source is found before the target is touched.
  ConvertRequest copy;
  copy.from = folder / "m";
  copy.to = folder / "copy";
  fs::resize_file(folder / "m/model.safetensors", before.size() - 1);
  EXPECT_NE(KILN_ERROR_OF(convert(copy, no_progress)).find("m/model.safetensors: tensor 'lm_head.weight'"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "copy"));
  EXPECT_FALSE(fs::exists(folder / "copy.tmp"));
}

}  // namespace
}  // namespace kiln::cli
