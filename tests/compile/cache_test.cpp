// Compiled kernels on disk: what is cut short, foreign or changed is made again, and never used.
#include "compile/cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "support/temp_folder.h"

namespace kiln::compile {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> code_of(std::string_view text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  ::chmod(path.c_str(), 0600);
}

const CacheKey kKey{"__global__ void f() {}", "sm_90a", "NVRTC 13.0"};

TEST(KernelCache, KeepsWhatWasMade) {
  const TempFolder folder;
  KernelCache first(folder.path() + "/kernels"), second(folder.path() + "/kernels");
  EXPECT_EQ(first.get(kKey, [] { return code_of("machine code"); }), code_of("machine code"));
  EXPECT_EQ(second.get(kKey, []() -> std::vector<std::byte> { throw Error("made again"); }),
            code_of("machine code"));
  EXPECT_EQ(second.hits(), 1);
  CacheKey other = kKey;
  other.arch = "sm_80";
  EXPECT_FALSE(second.find(other)) << "another architecture's";
  other = kKey;
  other.compiler = "NVRTC 13.1";
  EXPECT_FALSE(second.find(other)) << "another compiler's";
}

TEST(KernelCache, EveryBrokenEntryIsMadeAgain) {
  const TempFolder folder;
  KernelCache cache(folder.path() + "/kernels");
  (void)cache.get(kKey, [] { return code_of("machine code"); });
  const std::string path = cache.path_of(kKey), whole = read(path);
  ASSERT_GT(whole.size(), 40u);
  const auto is_made_again = [&](const std::string& broken, const std::string& what) {
    write(path, broken);
    EXPECT_FALSE(cache.find(kKey)) << what;
  };
  for (std::size_t length = 0; length < whole.size(); ++length)
    is_made_again(whole.substr(0, length), cat("cut to ", length, " bytes"));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    is_made_again(changed, cat("byte ", at, " changed"));
  }
  is_made_again(whole + "x", "longer");
  is_made_again(
      "\x7f"
      "ELF something else",
      "foreign");
  EXPECT_EQ(cache.get(kKey, [] { return code_of("made again"); }), code_of("made again"));
  EXPECT_EQ(cache.find(kKey), code_of("made again"));
}

TEST(KernelCache, AnotherKeysEntryIsNotTaken) {
  const TempFolder folder;
  KernelCache cache(folder.path() + "/kernels");
  (void)cache.get(kKey, [] { return code_of("machine code"); });
  CacheKey other = kKey;
  other.source += " ";
  fs::rename(cache.path_of(kKey), cache.path_of(other));
  EXPECT_FALSE(cache.find(other));
}

TEST(KernelCache, WhatOthersCouldHaveWrittenIsNotTaken) {
  const TempFolder folder;
  KernelCache cache(folder.path() + "/kernels");
  (void)cache.get(kKey, [] { return code_of("machine code"); });
  ::chmod(cache.path_of(kKey).c_str(), 0666);
  EXPECT_FALSE(cache.find(kKey));
}

// A folder that cannot be: its name is a file's. (A test as root may write into a read-only one.)
TEST(KernelCache, AFolderThatCannotBeWrittenIsSaid) {
  const TempFolder folder;
  write(folder.path() + "/file", "");
  KernelCache cache(folder.path() + "/file/kernels");
  EXPECT_EQ(cache.get(kKey, [] { return code_of("machine code"); }), code_of("machine code"));
  EXPECT_NE(cache.why_not_kept().find("are not kept in"), std::string::npos);
  EXPECT_EQ(cache.get(kKey, [] { return code_of("again"); }), code_of("again"));
}

TEST(KernelCache, ProcessesMayWriteAtOnce) {
  const TempFolder folder;
  const std::string path = folder.path() + "/kernels", large(200000, 'k');
  std::vector<pid_t> children;
  for (int child = 0; child < 2; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      bool right = true;
      for (int i = 0; i < 40; ++i) {
        KernelCache cache(path);
        CacheKey key = kKey;
        key.source += std::to_string(i % 4);
        right = right && cache.get(key, [&] { return code_of(large); }) == code_of(large);
        if (i % 3 == child) fs::remove(cache.path_of(key));
      }
      ::_exit(right ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  for (const auto& entry : fs::directory_iterator(path))
    EXPECT_EQ(entry.path().string().find('.', path.size()), std::string::npos)
        << entry.path() << " was left behind";
}

}  // namespace
}  // namespace kiln::compile
