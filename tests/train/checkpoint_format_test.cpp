#include "train/checkpoint/checkpoint_format.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/crc32c.h"
#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "support/temp_folder.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_names.h"
#include "train/checkpoint/manifest.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr Migration kPlanted[] = {
    {0,
     [](Json& m) {
       const Json steps = m["steps"];  // adding a key moves the others
       m["step"] = steps;
       m.erase("steps");
     },
     nullptr},
    {1, [](Json& m) { m["step"] = m["step"].get<int64_t>() * 10; }, [](Json& s) { s["new"] = true; }}};

Json document(std::string_view text) { return parse_json(text, {}, "test"); }

TEST(CheckpointFormat, EachMigrationRunsOnceAndInOrder) {
  Json manifest = document(R"({"format": 0, "steps": 4})");
  migrate(manifest, CheckpointPart::manifest, "m", 2, kPlanted);
  EXPECT_EQ(manifest, document(R"({"format": 2, "step": 40})"));
  Json state = document(R"({"format": 0})");
  migrate(state, CheckpointPart::state, "s", 2, kPlanted);
  EXPECT_EQ(state, document(R"({"format": 2, "new": true})"));
  Json later = document(R"({"format": 1, "step": 4})");
  migrate(later, CheckpointPart::manifest, "m", 2, kPlanted);
  EXPECT_EQ(later, document(R"({"format": 2, "step": 40})"));
  Json today = document(R"({"format": 2, "step": 4})");
  migrate(today, CheckpointPart::manifest, "m", 2, kPlanted);
  EXPECT_EQ(today, document(R"({"format": 2, "step": 4})"));
}

TEST(CheckpointFormat, WhatIsNewerOrUnknownIsRefusedWithBothNumbers) {
  const auto said = [](const char* text) {
    Json d = document(text);
    return KILN_ERROR_OF((migrate(d, CheckpointPart::manifest, "m.json", 2, kPlanted), 0));
  };
  EXPECT_EQ(
      said(R"({"format": 3})"),
      "m.json: format is 3; this kiln reads up to 2 | it was written by a newer kiln: resume with that one");
  EXPECT_EQ(said("{}").find("m.json"), 0u);
  Json d = document(R"({"format": 0})");
  EXPECT_EQ(KILN_ERROR_OF((migrate(d, CheckpointPart::state, "s.json"), 0)),
            "s.json: format is 0; this kiln reads 1 to 1");
}

TEST(CheckpointFormat, TheTableReachesFromTheFirstFormatToToday) {
  int64_t next = 1;
  for (const Migration& m : migrations()) EXPECT_EQ(m.from, next++);
  EXPECT_EQ(next, kCheckpointFormat);
}

// A folder of every format there was: written then, and never again.
TEST(CheckpointFormat, EveryFormatThereWasIsRead) {
  for (int64_t format = 1; format <= kCheckpointFormat; ++format) {
    const std::string goldens = KILN_TESTS_FOLDER "/goldens";
    const std::string run = format == 1 ? goldens + "/runs/adamw" : cat(goldens, "/runs-format-", format);
    const auto found =
        newest_checkpoint(run + "/checkpoints", [](const std::string& line) { ADD_FAILURE() << line; });
    ASSERT_TRUE(found) << "no golden folder of format " << format << " in " << run;
    for (const char* name : {Manifest::kName, kStateFile}) {
      const std::string text = read_small_file((fs::path(*found) / name).string(), 1 << 20, name);
      EXPECT_EQ(document(text)["format"].get<int64_t>(), format) << name;
    }
    EXPECT_EQ(read_train_state(*found).step(), 12);
  }
}

}  // namespace
}  // namespace kiln
