#include "base/safetensors.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/safetensors_writer.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &size, 8);
  return file + header + data;
}

// What is wrong with a file of these bytes, or "nothing".
std::string complaint(const std::string& file) {
  return KILN_ERROR_OF([&] {
    const SafetensorsParts parts = split_safetensors(std::as_bytes(std::span(file)), "f");
    return SafetensorsHeader(parts.json, parts.data.size(), "f");
  }());
}

std::string complaint(const std::string& header, const std::string& data) {
  return complaint(file_of(header, data));
}

std::string object(const std::string& inside) { return cat("{", inside, "}"); }

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, int begin,
                  int end) {
  return cat("\"", name, R"(":{"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":[)", begin, ",",
             end, "]}");
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  const TempFolder folder;
  const std::string path = folder / "a.safetensors";
  const std::string first(24, 'a'), second = "bcdefg";
  SafetensorsWriter writer(path,
                           {{"x", SafetensorsType::f32, {2, 3}},
                            {"nothing", SafetensorsType::f32, {0, 7}},
                            {"weird \" name\n", SafetensorsType::bf16, {3}},
                            {"empty at the end", SafetensorsType::u8, {0}}},
                           {{"format", "pt"}, {"note", "caf\xc3\xa9"}});
  writer.append(std::as_bytes(std::span(first)).first(5));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.append(std::as_bytes(std::span(first)).subspan(5));
  writer.append(std::as_bytes(std::span(second)));
  const std::vector<uint32_t> checksums = writer.commit();
  ASSERT_EQ(checksums.size(), 4U);

  const SafetensorsFile file(path);
  ASSERT_EQ(file.header().size(), 4U);
  EXPECT_EQ(file.header().metadata("format"), "pt");
  EXPECT_EQ(file.header().metadata("note"), "caf\xc3\xa9");
  EXPECT_FALSE(file.header().metadata("else"));
  const auto x = file.header().find("x");
  ASSERT_TRUE(x);
  EXPECT_EQ(x->shape_text(), "[2, 3]");
  EXPECT_EQ(x->elements(), 6U);
  EXPECT_EQ(std::memcmp(file.bytes(*x).data(), first.data(), 24), 0);
  EXPECT_EQ(crc32c(file.bytes(*x)), checksums[0]);
  EXPECT_EQ(crc32c(file.bytes(file.header().find("weird \" name\n").value())), checksums[2]);
  EXPECT_TRUE(file.bytes(file.header().find("nothing").value()).empty());
  EXPECT_FALSE(file.header().find("y"));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.bytes(*x).data()) % 8, 0U);
}

TEST(Safetensors, WriterRefusesWhatItCannotKeep) {
  const TempFolder folder;
  const std::string path = folder / "a";
  using Tensors = std::vector<SafetensorsDeclaration>;
  EXPECT_NE(KILN_ERROR_OF(SafetensorsWriter(path, Tensors{{"x", SafetensorsType::u8, {1}},
                                                          {"x", SafetensorsType::u8, {1}}}))
                .find("tensor 'x' appears twice"),
            std::string::npos);
  EXPECT_NE(KILN_ERROR_OF(SafetensorsWriter(path, Tensors{{"x", SafetensorsType::u8, {1}},
                                                          {"y", SafetensorsType::f32, {1}}}))
                .find("declare wider types first"),
            std::string::npos);
  {
    SafetensorsWriter writer(path, {{"x", SafetensorsType::u8, {4}}});
    const std::byte five[5] = {};
    EXPECT_NE(KILN_ERROR_OF(writer.append(five)).find("tensor 'x', which takes 4 more"), std::string::npos);
    writer.append(std::span(five).first(3));
    EXPECT_NE(KILN_ERROR_OF(writer.commit()).find("tensor 'x' lacks 1 bytes"), std::string::npos);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Safetensors, RulesOfTheFormat) {
  const std::string ok = entry("x", "F32", "[2]", 0, 8), eight(8, '\0');
  EXPECT_EQ(complaint(object(ok), eight), "nothing");
  EXPECT_EQ(complaint(object(ok) + "   ", eight), "nothing");
  EXPECT_EQ(complaint("{}", ""), "nothing");
  EXPECT_EQ(complaint(object(R"("__metadata__":{"a":"b"},)" + ok), eight), "nothing");
  EXPECT_EQ(complaint(object(entry("s", "F64", "[]", 0, 8)), eight), "nothing");
  EXPECT_EQ(complaint(object(entry("b", "I8", "[4]", 4, 8) + "," + entry("a", "I8", "[4]", 0, 4)), eight),
            "nothing");
  EXPECT_EQ(complaint(object(entry("f", "F4", "[16]", 0, 8)), eight), "nothing");

  const auto expect = [&](const std::string& inside, const std::string& words) {
    const std::string got = complaint(object(inside), eight);
    EXPECT_TRUE(got.starts_with("f: ") && got.find(words) != std::string::npos) << inside << ": " << got;
  };
  expect(ok + "," + ok, "tensor 'x' appears twice in the header");
  expect(ok + "," + entry("y", "F32", "[1]", 4, 8), "tensor 'y' overlaps the one before it");
  expect(entry("x", "F32", "[1]", 0, 4), "8 bytes of data, the tensors take 4");
  expect(entry("x", "F32", "[1]", 4, 8), "tensor 'x' leaves a hole before it");
  expect(entry("x", "F32", "[3]", 0, 12), "tensor 'x' has bytes [0, 12); the file has 8 bytes of data");
  expect(entry("x", "F32", "[3]", 0, 8), "8 in total; [3] of F32 are 12");
  expect(entry("x", "F33", "[2]", 0, 8), "tensor 'x' has the unknown dtype 'F33'");
  expect(entry("x", "F32", "[2]", 8, 0), "ends before it begins");
  expect(entry("x", "F32", "[4611686018427387904,4]", 0, 8), "a size that cannot be counted");
  expect(entry("x", "F32", "[9223372036854775807]", 0, 8), "a size that cannot be counted");
  expect(entry("x", "F4", "[15]", 0, 8), "a size that cannot be counted");
  expect(entry("x", "F32", "[-2]", 0, 8), "has a negative number in its shape");
  expect(entry("x", "F32", "[2.0]", 0, 8), "not a whole number");
  expect(entry("x", "F32", "[99999999999999999999]", 0, 8), "not a whole number of 64 bits");
  expect(entry("x", "F32", "2", 0, 8), "has a shape that is a number");
  expect(entry("x", "F32", "[[2]]", 0, 8), "an array in its shape");
  expect(R"("x":{"dtype":"F32","shape":[2]})", "lacks 'data_offsets'");
  expect(R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0]})", "not two numbers");
  expect(R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})", "not two numbers");
  expect(R"("x":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})", "key 'dtype' twice");
  expect(R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1})", "unknown key 'more'");
  expect(R"("x":3)", "tensor 'x' is a number; expected an object");
  expect(R"("__metadata__":{"a":1},)" + ok, "__metadata__.a is a number; expected a string");
  expect(R"("__metadata__":{"a":"1","a":"2"},)" + ok, "has the key 'a' twice");
  expect(R"("__metadata__":{},)" + ok + R"(,"__metadata__":{})", "has '__metadata__' twice");
  expect(R"("__metadata__":null,)" + ok, "__metadata__ is null; expected an object");
  expect(entry(std::string(5000, 'n'), "F32", "[2]", 0, 8), "name has 5000 bytes; at most 4096");
  EXPECT_NE(complaint(" {}", "").find("does not begin with '{'"), std::string::npos);
  EXPECT_NE(complaint("[]", "").find("does not begin with '{'"), std::string::npos);
  EXPECT_NE(complaint("{} {}", "").find("the header is not JSON"), std::string::npos);
  std::string axes = "[1";
  for (int i = 0; i < 64; ++i) axes += ",1";
  expect(entry("x", "U8", axes + "]", 0, 1), "more than 64 axes");
}

TEST(Safetensors, LengthsOfTheHeader) {
  EXPECT_NE(complaint(std::string(7, '\0')).find("too few"), std::string::npos);
  EXPECT_NE(complaint(std::string(8, '\xff')).find("at most 100000000 are read"), std::string::npos);
  std::string file = file_of("{}", "");
  file[0] = 3;
  EXPECT_NE(complaint(file).find("3 bytes are announced, 2 are there"), std::string::npos);
}

std::string small_file() {
  return file_of(object(entry("first", "F32", "[2,2]", 0, 16) + "," + entry("second", "BF16", "[3]", 16, 22) +
                        R"(,"__metadata__":{"format":"pt"})"),
                 std::string(22, 'd'));
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = small_file();
  ASSERT_EQ(complaint(whole), "nothing");
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(complaint(whole.substr(0, size)), "nothing") << size;
  EXPECT_NE(complaint(whole + "x"), "nothing");
}

// A flipped byte of the header may still give a file within the rules, with another name say; then the
// tensors must cover the data exactly and be inside it.
TEST(Safetensors, EveryFlippedHeaderByteIsRefusedOrStillObeysTheRules) {
  const std::string whole = small_file();
  const std::size_t header = whole.size() - 22;
  int taken = 0;
  for (std::size_t at = 0; at < header; ++at) {
    for (int change = 1; change < 256; ++change) {
      std::string file = whole;
      file[at] = static_cast<char>(file[at] ^ change);
      try {
        const SafetensorsParts parts = split_safetensors(std::as_bytes(std::span(file)), "f");
        const SafetensorsHeader h(parts.json, parts.data.size(), "f");
        uint64_t end = 0;
        for (std::size_t i = 0; i < h.size(); ++i) {
          ASSERT_EQ(h[i].begin, end);
          ASSERT_EQ(h[i].bytes() * 8, h[i].elements() * static_cast<uint64_t>(bits_of(h[i].type)));
          end = h[i].end;
        }
        ASSERT_EQ(end, parts.data.size());
        ++taken;
      } catch (const Error& error) {
        ASSERT_TRUE(std::string_view(error.what()).starts_with("f: ")) << error.what();
      }
    }
  }
  EXPECT_GT(taken, 0);  // names and metadata may be anything
}

TEST(Safetensors, AFileCutWhileOpenIsAnError) {
  const TempFolder folder;
  const std::string path = folder.write("a", small_file());
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, 100);
  EXPECT_NE(KILN_ERROR_OF(file.bytes(file.header()[0])).find("changed while it was read"), std::string::npos);
}

// A line of /proc/self/status, in KiB.
long status_kib(std::string_view name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return std::stol(line.substr(name.size() + 1));
  }
  return -1;
}

// The most memory `work` had beyond what the process had before, in KiB; nothing where the system cannot
// count that. The largest ever (ru_maxrss) would be of the tests before, and what they freed and malloc keeps
// would hide what is taken.
template <class Work>
std::optional<long> peak_growth_kib(const Work& work) {
  ::malloc_trim(0);
  std::ofstream peak("/proc/self/clear_refs");
  peak << "5" << std::flush;  // VmHWM begins again at what there is now
  if (!peak) return std::nullopt;
  const long before = status_kib("VmRSS:");
  work();
  return status_kib("VmHWM:") - before;
}

TEST(Safetensors, HundredThousandTensors) {
  constexpr int kTensors = 100'000;
  const TempFolder folder;
  const std::string path = folder / "many";
  std::vector<SafetensorsDeclaration> tensors;
  for (int i = 0; i < kTensors; ++i)
    tensors.push_back({cat("model.layers.", i, ".self_attn.q_proj.weight"), SafetensorsType::f32, {2, 4}});
  {
    SafetensorsWriter writer(path, tensors);
    const std::vector<std::byte> row(32);
    for (int i = 0; i < kTensors; ++i) writer.append(row);
    (void)writer.commit();
  }
  bool found = false;
  const auto begin = std::chrono::steady_clock::now();
  const std::optional<long> kib = peak_growth_kib([&] {
    const SafetensorsFile file(path);
    found = file.header().find("model.layers.99999.self_attn.q_proj.weight").has_value();
  });
  EXPECT_TRUE(found);
  if (!kib) GTEST_SKIP() << "no /proc/self/clear_refs here: the memory taken is not measured";
  const long header = static_cast<long>((std::filesystem::file_size(path) - 32 * kTensors) / 1024);
  std::printf("100,000 tensors: %.2f s, %ld KiB at the peak, for a header of %ld KiB\n",
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), *kib, header);
  EXPECT_GT(*kib, header) << "less than the text itself: what was measured?";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(*kib, 50 * 1024);  // 26 MiB are seen
#endif
}

// The longest header there may be: read within its bound of memory. make soak takes the time.
TEST(Safetensors, DISABLED_AHeaderOfAHundredMegabytes) {
  std::string text = "{";
  for (int i = 0; text.size() + 200 < SafetensorsHeader::kMostBytes; ++i)
    text += cat(i == 0 ? "" : ",", "\"model.layers.", i,
                ".self_attn.q_proj.weight.of.a.long.name\":", R"({"dtype":"F32","shape":[],"data_offsets":[)",
                4 * int64_t{i}, ",", 4 * int64_t{i} + 4, "]}");
  text += "}";
  const auto tensors = static_cast<uint64_t>(std::count(text.begin(), text.end(), '}') - 1);
  const auto begin = std::chrono::steady_clock::now();
  const std::optional<long> kib = peak_growth_kib([&] {
    const SafetensorsHeader header(text, 4 * tensors, "input");
    EXPECT_EQ(header.size(), tensors);
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LT(kib.value_or(0), static_cast<long>(4 * text.size() / 1024 + 1024));
  std::printf("a header of %.1f MB, %llu tensors: %.2f s, %ld MiB\n", static_cast<double>(text.size()) / 1e6,
              static_cast<unsigned long long>(tensors), seconds, kib.value_or(0) / 1024);
}

TEST(Safetensors, AByteZeroInTheHeaderIsRefused) {
  EXPECT_EQ(KILN_ERROR_OF(SafetensorsHeader(std::string_view("{}\0", 3), 0, "input")),
            "input: the header is not JSON: byte 2 is 0");
  EXPECT_EQ(KILN_ERROR_OF(SafetensorsHeader("{}", 0, "input")), "nothing");
}

TEST(Safetensors, TooManyTensorsAndTooLongAHeaderAreRefused) {
  std::string text = "{";
  for (std::size_t i = 0; i <= SafetensorsHeader::kMostTensors; ++i)
    text += cat(i == 0 ? "" : ",", "\"", i, R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
  text += "}";
  EXPECT_EQ(KILN_ERROR_OF(SafetensorsHeader(text, 0, "input")),
            "input: the header has more than 1000000 tensors");
  text.assign(SafetensorsHeader::kMostBytes + 1, ' ');
  EXPECT_EQ(KILN_ERROR_OF(SafetensorsHeader(text, 0, "input")),
            "input: the header has 100000001 bytes; at most 100000000 are read");
}

TEST(Safetensors, AHeaderBeyondTheLimitIsRefusedUnread) {
  std::vector<std::byte> file(64);
  const uint64_t length = SafetensorsHeader::kMostBytes + 1;
  std::memcpy(file.data(), &length, sizeof length);
  const std::string said = KILN_ERROR_OF(split_safetensors(file, "input"));
  EXPECT_NE(said.find("100000001"), std::string::npos) << said;
}

}  // namespace
}  // namespace kiln
