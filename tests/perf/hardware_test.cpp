#include "perf/model/hardware.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

constexpr const char* kFile =
    R"({"schema": 1, "name": "mine", "title": "Mine", "kind": "cuda", "source": "measured",
  "from": "a bench", "memory_bytes": 1e9, "bytes_per_s": 2e11, "flops": {"bf16": 3e12}})";

std::string with(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

std::string error_of(const std::string& text) {
  try {
    (void)read_hardware(text, "mine.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Hardware, EveryFileOfTheProgramReadsAndIsNamedAsItsFile) {
  ASSERT_GE(hardware_names().size(), 8u);
  for (const std::string& name : hardware_names()) {
    const Hardware h = find_hardware(name);
    EXPECT_EQ(h.name, name);
    EXPECT_GT(h.flops_of("bf16"), 1e13);
    EXPECT_TRUE(h.link) << name;
    EXPECT_FALSE(h.from.empty());
  }
}

TEST(Hardware, MeasuredRatesComeFirst) {
  const Hardware h = find_hardware("h200");
  EXPECT_EQ(h.flops_of("bf16"), 710e12);
  EXPECT_EQ(h.flops_of("fp8"), 1978.9e12);
  EXPECT_EQ(h.copy_rate(), 4.23e12);
  EXPECT_EQ(find_hardware("h100").copy_rate(), 3.35e12);
}

TEST(Hardware, AFileOfOnesOwn) {
  const TempFolder folder;
  const std::string path = folder.path() + "/mine.json";
  std::ofstream(path) << kFile;
  const Hardware h = find_hardware(path);
  EXPECT_EQ(h.title, "Mine");
  EXPECT_TRUE(h.measured);
  EXPECT_EQ(h.flops_of("bf16"), 3e12);
  EXPECT_THROW((void)h.flops_of("fp8"), Error);
}

TEST(Hardware, SaysWhatIsWrongWithAFile) {
  EXPECT_NE(error_of(with(kFile, "2e11", "-2e11"))
                .find("mine.json: bytes_per_s is -2e11; expected a number above 0"),
            std::string::npos)
      << error_of(with(kFile, "2e11", "-2e11"));
  EXPECT_NE(error_of(with(kFile, "cuda", "gpu")).find("kind is 'gpu'"), std::string::npos);
  EXPECT_NE(error_of(with(kFile, "memory_bytes", "memory_byte")).find("memory_byte"), std::string::npos);
  EXPECT_NE(error_of(with(kFile, "\"bf16\": 3e12", "")).find("has no rate"), std::string::npos);
  EXPECT_NE(error_of(with(kFile, "\"schema\": 1", "\"schema\": 2")).find("schema"), std::string::npos);
}

TEST(Hardware, AnUnknownNameSuggestsTheNearest) {
  try {
    (void)find_hardware("h1000");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--hw is 'h1000'; expected one of"), std::string::npos);
    EXPECT_NE(error.hint().find("did you mean 'h100'?"), std::string::npos);
  }
}

}  // namespace
}  // namespace kiln
