// Token files of every format, to the byte, and everything that can be wrong with one.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "data/shard_writer.h"
#include "data/token_folder.h"
#include "data/token_set.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

template <class T>
std::string packed(std::initializer_list<int64_t> values) {
  std::string bytes;
  for (const int64_t v : values) {
    const T t = static_cast<T>(v);
    bytes.append(reinterpret_cast<const char*>(&t), sizeof t);
  }
  return bytes;
}

std::string llmc(int32_t magic, int32_t version, int32_t count, const std::string& data) {
  std::string bytes = packed<int32_t>({magic, version, count});
  bytes.resize(1024, '\0');
  return bytes + data;
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& data, int major = 1) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string bytes("\x93NUMPY", 6);
  bytes += static_cast<char>(major);
  bytes += '\0';
  bytes += packed<uint16_t>({static_cast<int64_t>(header.size())});
  if (major > 1) bytes += packed<uint16_t>({0});
  return bytes + header + data;
}

std::vector<int32_t> read_all(const std::string& path, int32_t vocab_size = 70'000) {
  const TokenShard shard(path);
  std::vector<int32_t> ids(static_cast<std::size_t>(shard.size()));
  shard.read(0, ids, vocab_size);
  return ids;
}

TEST(TokenShard, ReadsEveryFormat) {
  const TempFolder folder;
  const std::vector<int32_t> expected = {1, 2, 60'000};
  const auto check = [&](const std::string& name, const std::string& bytes, std::string_view format) {
    const std::string path = folder.write(name, bytes);
    EXPECT_EQ(TokenShard(path).layout().format, format);
    EXPECT_EQ(read_all(path), expected) << format;
  };
  check("a.bin", llmc(20240520, 1, 3, packed<uint16_t>({1, 2, 60'000})), "llm.c uint16");
  check("b.bin", llmc(20240801, 7, 3, packed<uint32_t>({1, 2, 60'000})), "llm.c uint32");
  check("c.bin", packed<uint16_t>({1, 2, 60'000}), "nanoGPT uint16");
  check("d.npy", npy("<u2", "(3,)", packed<uint16_t>({1, 2, 60'000})), "npy uint16");
  check("e.npy", npy("<u4", "(3,)", packed<uint32_t>({1, 2, 60'000})), "npy uint32");
  check("f.npy", npy("<i4", "(3,)", packed<int32_t>({1, 2, 60'000}), 2), "npy int32");
  check("g.npy", npy("<i8", "(3,)", packed<int64_t>({1, 2, 60'000}), 3), "npy int64");
  EXPECT_EQ(TokenShard(expected, "memory").size(), 3);
}

TEST(TokenShard, RefusesWhatIsWrongBeforeReadingIt) {
  const TempFolder folder;
  const auto refusal = [&](const std::string& name, const std::string& bytes) {
    const std::string path = folder.write(name, bytes);
    std::string text = KILN_ERROR_OF(TokenShard(path));
    const auto at = text.find(path);
    if (at != std::string::npos) text.replace(at, path.size(), "F");
    return text.substr(0, text.find(" | "));
  };
  EXPECT_EQ(refusal("a.bin", ""), "F is empty; expected a file of tokens");
  EXPECT_EQ(refusal("a.bin", "abc"), "F has no header and 3 bytes, an odd number; expected uint16 tokens");
  EXPECT_EQ(refusal("a.txt", "abcd"), "F is not a file of tokens");
  EXPECT_EQ(refusal("a.bin", packed<int32_t>({20240520, 1, 3})),
            "F is cut short: it has 12 bytes, an llm.c header has 1024");
  EXPECT_EQ(refusal("a.bin", llmc(20240520, 2, 0, "")), "F has llm.c version 2; expected 1");
  EXPECT_EQ(refusal("a.bin", llmc(20240801, 1, 0, "")), "F has llm.c version 1; expected 7");
  EXPECT_EQ(refusal("a.bin", llmc(20240520, 1, 3, "abcd")),
            "F has 1028 bytes; its header says 3 tokens, which take 1030");
  EXPECT_EQ(refusal("a.bin", llmc(20240520, 1, 1, "abcd")),
            "F has 1028 bytes; its header says 1 tokens, which take 1026");
  EXPECT_EQ(refusal("a.bin", llmc(20240520, 1, -1, "")),
            "F has 1024 bytes; its header says -1 tokens, which take 1024");
  EXPECT_EQ(refusal("a.bin", llmc(20240520, 1, 0, "")), "F holds no tokens");
  EXPECT_EQ(refusal("a.bin", llmc(20240522, 1, 1, "ab")),
            "F is an evaluation file of llm.c (HellaSwag), not a file of training tokens");
  EXPECT_EQ(refusal("a.npy", "\x93NUMPY"), "F is cut short: 6 bytes are no .npy file");
  EXPECT_EQ(refusal("a.npy", npy("<u2", "(3,)", "ab")), "F has 2 bytes of data; its header says 3 x uint16");
  EXPECT_EQ(refusal("a.npy", npy("<f4", "(1,)", "abcd")),
            "F holds '<f4'; expected little-endian uint16, uint32, int32 or int64");
  EXPECT_EQ(refusal("a.npy", npy(">u2", "(1,)", "ab")),
            "F holds '>u2'; expected little-endian uint16, uint32, int32 or int64");
  EXPECT_EQ(refusal("a.npy", npy("<u2", "(1, 1)", "ab")),
            "F: the .npy header has more than one axis; expected one");
  EXPECT_EQ(refusal("a.npy", npy("<u2", "()", "ab")),
            "F: the .npy header has the shape (); expected one axis");
  EXPECT_EQ(refusal("a.npy", npy("<u2", "(0,)", "")), "F holds no tokens");
  EXPECT_EQ(refusal("a.npy", npy("<u2", "(99999999999999999999,)", "ab")),
            "F: the .npy header has something else where a length should be");
  EXPECT_EQ(refusal("a.npy", npy("<u2", "(1,)", "ab", 9)),
            "F is a .npy file of version 9; expected 1, 2 or 3");
  EXPECT_NE(KILN_ERROR_OF(TokenShard(folder / "none.bin")).find("No such file"), std::string::npos);
}

TEST(TokenShard, EveryTruncationIsRefusedOrWhole) {
  const TempFolder folder;
  for (const std::string& good :
       {llmc(20240520, 1, 40, std::string(80, 'x')), npy("<i8", "(4,)", std::string(32, 'x'))}) {
    for (std::size_t n = 0; n < good.size(); ++n) {
      const std::span<const std::byte> bytes = std::as_bytes(std::span(good)).first(n);
      EXPECT_THROW(sniff_tokens(bytes, "f.npy"), Error) << n;
    }
    EXPECT_NO_THROW(sniff_tokens(std::as_bytes(std::span(good)), "f"));
  }
}

TEST(TokenShard, IdsBeyondTheVocabularyAreNamed) {
  const TempFolder folder;
  ThreadPool pool(2);
  const auto refusal = [&](const std::string& name, const std::string& bytes, int32_t vocab) {
    const std::string path = folder.write(name, bytes);
    std::vector<TokenShard> shards;
    shards.emplace_back(path);
    std::string text = KILN_ERROR_OF(TokenSet(std::move(shards), vocab, pool));
    const auto at = text.find(path);
    if (at != std::string::npos) text.replace(at, path.size(), "F");
    return text.substr(0, text.find(" | "));
  };
  EXPECT_EQ(refusal("a.bin", llmc(20240520, 1, 3, packed<uint16_t>({1, 2, 300})), 257),
            "id 300 is beyond the vocabulary of 257: token 2, byte 1028 of F");
  EXPECT_EQ(refusal("a.bin", llmc(20240801, 7, 2, packed<uint32_t>({4'000'000'000, 2})), 257),
            "id 4000000000 is beyond the vocabulary of 257: token 0, byte 1024 of F");
  EXPECT_EQ(refusal("a.npy", npy("<i8", "(2,)", packed<int64_t>({0, -5})), 257),
            "id -5 is beyond the vocabulary of 257: token 1, byte 136 of F");
  EXPECT_EQ(refusal("a.npy", npy("<i8", "(1,)", packed<int64_t>({int64_t{1} << 40})), 257),
            "id 1099511627776 is beyond the vocabulary of 257: token 0, byte 128 of F");
  EXPECT_EQ(refusal("a.bin", packed<uint16_t>({256}), 257), "nothing");
}

TEST(TokenShard, AFileCutWhileMappedIsAnErrorAndNoSignal) {
  const TempFolder folder;
  const std::string path = folder.write("a.bin", std::string(1 << 16, '\1'));
  const TokenShard shard(path);
  std::filesystem::resize_file(path, 10);
  std::vector<int32_t> ids(100);
  EXPECT_NE(KILN_ERROR_OF(shard.read(30'000, ids, 70'000)).find("changed while it was read"),
            std::string::npos);
}

TEST(ShardWriter, WritesLlmcToTheByte) {
  const TempFolder folder;
  const std::vector<int32_t> ids = {0, 1, 300, 65'535};
  ShardWriter narrow(folder.path(), "train", 65'536, 100);
  narrow.append(ids);
  const auto files = narrow.finish();
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].name, "train_000000.bin");
  EXPECT_EQ(folder.read("train_000000.bin"), llmc(20240520, 1, 4, packed<uint16_t>({0, 1, 300, 65'535})));
  ShardWriter wide(folder.path(), "val", 65'537, 100);
  wide.append(ids);
  (void)wide.finish();
  EXPECT_EQ(folder.read("val_000000.bin"), llmc(20240801, 7, 4, packed<uint32_t>({0, 1, 300, 65'535})));
}

TEST(ShardWriter, StartsANewFileWhenOneIsFull) {
  const TempFolder folder;
  std::vector<int32_t> ids(25);
  std::iota(ids.begin(), ids.end(), 0);
  ShardWriter writer(folder.path(), "t", 100, 10);
  writer.append(std::span(ids).first(3));
  writer.append(std::span(ids).subspan(3));
  const auto files = writer.finish();
  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files[2].tokens, 5);
  std::vector<int32_t> back;
  for (const ShardFile& f : files) {
    for (const int32_t id : read_all(folder / f.name)) back.push_back(id);
  }
  EXPECT_EQ(back, ids);
}

TEST(ShardWriter, NothingHalfWrittenStays) {
  const TempFolder folder;
  {
    ShardWriter writer(folder.path(), "t", 100, 1000);
    writer.append(std::vector<int32_t>{1, 2, 3});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  ShardWriter writer(folder.path(), "t", 100, 1000);
  EXPECT_EQ(KILN_ERROR_OF(writer.append(std::vector<int32_t>{100})),
            "id 100 to be written is beyond the vocabulary of 100");
  EXPECT_EQ(ShardWriter(folder.path(), "u", 100, 10).finish().size(), 0U);
  EXPECT_NE(KILN_ERROR_OF(ShardWriter(folder.path(), "u", 100, 0)).find("expected 1 to 2147483647"),
            std::string::npos);
}

TokenFolder make_folder(const TempFolder& folder) {
  TokenFolder content{.tokenizer = "byte", .fingerprint = "00", .vocab_size = 257, .train = {}, .val = {}};
  ShardWriter train(folder.path(), "train", 257, 4), val(folder.path(), "val", 257, 4);
  train.append(std::vector<int32_t>{1, 2, 3, 4, 5});
  val.append(std::vector<int32_t>{6});
  content.train = train.finish();
  content.val = val.finish();
  write_dataset_json(folder.path(), content);
  return content;
}

TEST(TokenFolder, IsReadBackAndMissingShardsAreNoticed) {
  const TempFolder folder;
  make_folder(folder);
  EXPECT_EQ(read_token_folder(folder.path()).vocab_size, 257);
  EXPECT_EQ(token_files(folder.path(), "train"),
            (std::vector<std::string>{folder / "train_000000.bin", folder / "train_000001.bin"}));
  EXPECT_EQ(token_files(folder.path(), "val"), std::vector<std::string>{folder / "val_000000.bin"});
  folder.write("train_000001.bin", llmc(20240520, 1, 2, "abcd"));
  EXPECT_NE(KILN_ERROR_OF(read_token_folder(folder.path())).find("has 2 tokens; "), std::string::npos);
  std::filesystem::remove(folder / "train_000001.bin");
  EXPECT_NE(KILN_ERROR_OF(token_files(folder.path(), "train")).find("No such file"), std::string::npos);
}

TEST(TokenFolder, BadManifestsAreRefused) {
  const auto refusal = [](std::string text) { return KILN_ERROR_OF(parse_dataset_json(text, "d")); };
  const std::string tokenizer = R"("tokenizer":{"kind":"byte","fingerprint":"0","vocab_size":257})";
  EXPECT_EQ(refusal("{}"), "d: lacks 'format'");
  EXPECT_EQ(refusal(R"({"format":"x"})"), "d: format is 'x'; expected 'kiln-tokens-1'");
  const std::string head = R"({"format":"kiln-tokens-1",)" + tokenizer + ",";
  EXPECT_NE(
      refusal(head + R"("train":[{"file":"../x","tokens":1}],"val":[]})").find("expected the plain name"),
      std::string::npos);
  EXPECT_NE(refusal(head + R"("train":[{"file":"x","tokens":0}],"val":[]})").find("train[0].tokens is 0"),
            std::string::npos);
  EXPECT_EQ(refusal(head + R"("train":[],"val":[]})"), "nothing");
}

TEST(TokenFiles, OfAFolderWithoutAManifest) {
  const TempFolder folder;
  folder.write("a.bin", "ab");
  folder.write("b.npy", "ab");
  folder.write("notes.txt", "ab");
  EXPECT_EQ(token_files(folder.path(), "train").size(), 2U);
  EXPECT_NE(KILN_ERROR_OF(token_files(folder.path(), "val")).find("holds no val tokens"), std::string::npos);
  folder.write("x_val_0.bin", "ab");
  folder.write("x_train_0.bin", "ab");
  EXPECT_EQ(token_files(folder.path(), "train"), std::vector<std::string>{folder / "x_train_0.bin"});
  EXPECT_EQ(token_files(folder / "a.bin", "train"), std::vector<std::string>{folder / "a.bin"});
  EXPECT_NE(KILN_ERROR_OF(token_files(folder / "none", "train")).find("there are no tokens at"),
            std::string::npos);
}

// More than 2^32 tokens, more than 8 GiB, on a sparse file: offsets must not wrap where tokens or bytes pass
// 2^31 and 2^32.
TEST(TokenShard, OffsetsBeyondFourGigabytes) {
  const TempFolder folder;
  const std::string path = folder.write("big.bin", "");
  const int64_t count = (int64_t{1} << 32) + 1000;
  std::error_code error;
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(count) * 2, error);
  if (error) GTEST_SKIP() << "no sparse file of 8 GiB here: " << error.message();
  // Two tokens around each place, and the last two.
  const int64_t places[] = {int64_t{1} << 30, int64_t{1} << 31, int64_t{1} << 32, count - 1};
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    uint16_t next = 7;
    for (const int64_t place : places) {
      file.seekp((place - 1) * 2);
      file << packed<uint16_t>({next, static_cast<uint16_t>(next + 1)});
      next = static_cast<uint16_t>(next + 2);
    }
  }
  const TokenShard shard(path);
  EXPECT_EQ(shard.size(), count);
  int32_t next = 7;
  for (const int64_t place : places) {
    std::vector<int32_t> ids(3);
    shard.read(place - 2, ids, 100);
    EXPECT_EQ(ids, (std::vector<int32_t>{0, next, next + 1})) << place;
    next += 2;
  }
}

}  // namespace
}  // namespace kiln
