#include "train/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

uint32_t checksum(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

Manifest example() {
  return {
      40,
      3,
      {{"a.json", 5, checksum("hello"), {}},
       {"m.bin", 4 + 3 + 5, checksum("head"), {{"one", 3, checksum("abc")}, {"two", 5, checksum("defgh")}}}}};
}

void write_files(const TempFolder& folder, const Manifest& m) {
  folder.write("a.json", "hello");
  folder.write("m.bin", "headabcdefgh");
  folder.write("manifest.json", manifest_text(m));
}

TEST(Manifest, ReadsBackWhatItWrote) {
  const Manifest m = parse_manifest(manifest_text(example()), "x");
  EXPECT_EQ(m.step, 40);
  EXPECT_EQ(m.generation, 3u);
  ASSERT_EQ(m.files.size(), 2u);
  EXPECT_EQ(m.files[1].name, "m.bin");
  ASSERT_EQ(m.files[1].tensors.size(), 2u);
  EXPECT_EQ(m.files[1].tensors[1].name, "two");
  EXPECT_EQ(m.files[1].tensors[1].crc32c, checksum("defgh"));
  EXPECT_EQ(manifest_text(m), manifest_text(example()));
}

TEST(Manifest, NoFlippedBitAndNoCutGetsThrough) {
  const std::string good = manifest_text(example());
  for (std::size_t i = 0; i < good.size() * 8; ++i) {
    std::string bad = good;
    bad[i / 8] = static_cast<char>(bad[i / 8] ^ (1 << i % 8));
    EXPECT_NE(KILN_ERROR_OF(parse_manifest(bad, "x")), "nothing") << "bit " << i;
  }
  for (std::size_t n = 0; n < good.size(); ++n)
    EXPECT_NE(KILN_ERROR_OF(parse_manifest(good.substr(0, n), "x")), "nothing") << n << " bytes";
  EXPECT_NE(KILN_ERROR_OF(parse_manifest(good + "\n", "x")), "nothing");
}

TEST(Manifest, WhatItSaysIsCheckedEvenUnderARightChecksum) {
  const auto said = [](const Manifest& m) { return KILN_ERROR_OF(parse_manifest(manifest_text(m), "x")); };
  for (const char* name : {"", ".", "..", "a/b", "/etc/passwd", "manifest.json"}) {
    Manifest m = example();
    m.files[0].name = name;
    EXPECT_NE(said(m).find("is no plain file name"), std::string::npos) << name;
  }
  Manifest m = example();
  m.files[1].tensors[0].bytes = 13;
  EXPECT_NE(said(m).find("is more than the file has left"), std::string::npos);
  m = example();
  m.files[1].name = "a.json";
  EXPECT_NE(said(m).find("appears twice"), std::string::npos);
  m = example();
  m.files[0].bytes = UINT64_MAX;
  EXPECT_NE(said(m), "nothing");
}

TEST(Manifest, EveryByteOfTheFolderIsUnderAChecksum) {
  const TempFolder folder;
  write_files(folder, example());
  EXPECT_EQ(verify_checkpoint(folder.path()).step, 40);
  const std::string good = folder.read("m.bin");
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    folder.write("m.bin", bad);
    const std::string said = KILN_ERROR_OF(verify_checkpoint(folder.path()));
    EXPECT_NE(said.find(i < 4   ? "m.bin: the header"
                        : i < 7 ? "m.bin: tensor one"
                                : "m.bin: tensor two"),
              std::string::npos)
        << i << ": " << said;
  }
  folder.write("m.bin", good + "x");
  EXPECT_NE(KILN_ERROR_OF(verify_checkpoint(folder.path())).find("has 13 bytes; 12 were written"),
            std::string::npos);
  folder.write("m.bin", good);
  folder.write("a.json", "hellO");
  EXPECT_NE(KILN_ERROR_OF(verify_checkpoint(folder.path())).find("a.json is damaged"), std::string::npos);
  std::filesystem::remove(folder / "a.json");
  EXPECT_NE(KILN_ERROR_OF(verify_checkpoint(folder.path())).find("a.json"), std::string::npos);
}

TEST(Manifest, DescribesFilesAsTheyAre) {
  const TempFolder folder;
  write_files(folder, example());
  const ManifestFile f = describe_file(folder.path(), "m.bin", example().files[1].tensors);
  EXPECT_EQ(f.bytes, 12u);
  EXPECT_EQ(f.crc32c, checksum("head"));
  EXPECT_NE(KILN_ERROR_OF(describe_file(folder.path(), "a.json", example().files[1].tensors)), "nothing");
}

}  // namespace
}  // namespace kiln
