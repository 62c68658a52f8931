#include "device/cpu/cpu_features.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

// All of what a Sapphire Rapids reports, as far as we read it.
CpuidWords sapphire_rapids() {
  return {.leaf1_ecx = (1U << 12) | (1U << 20) | (1U << 28) | (1U << 29),
          .leaf7_ebx = (1U << 5) | (1U << 8) | (1U << 16) | (1U << 17) | (1U << 30) | (1U << 31),
          .leaf7_ecx = 1U << 11,
          .leaf7_edx = (1U << 22) | (1U << 23) | (1U << 24) | (1U << 25),
          .leaf7_1_eax = 1U << 5,
          .xcr0 = 0x602e7,
          .amx_permitted = true};
}

TEST(CpuFeatures, AllPresent) {
  const CpuFeatures f = decode_cpu_features(sapphire_rapids());
  for (const auto& [name, present] : named_features(f)) EXPECT_TRUE(present) << name;
  EXPECT_TRUE(f.amx_blocked.empty());
}

TEST(CpuFeatures, NothingWithoutTheOperatingSystem) {
  CpuidWords words = sapphire_rapids();
  words.xcr0 = 0x1;
  const CpuFeatures f = decode_cpu_features(words);
  EXPECT_TRUE(f.sse4_2);
  EXPECT_FALSE(f.avx || f.fma || f.f16c || f.avx2 || f.avx512f || f.avx512_bf16 || f.amx_tile);
}

TEST(CpuFeatures, Avx512NeedsItsOwnSavedState) {
  CpuidWords words = sapphire_rapids();
  words.xcr0 = 0x7;
  const CpuFeatures f = decode_cpu_features(words);
  EXPECT_TRUE(f.avx2 && f.fma);
  EXPECT_FALSE(f.avx512f || f.avx512vl || f.avx512_bf16);
}

TEST(CpuFeatures, AmxThatIsBlockedSaysWhy) {
  CpuidWords words = sapphire_rapids();
  words.amx_permitted = false;
  EXPECT_FALSE(decode_cpu_features(words).amx_bf16);
  EXPECT_NE(decode_cpu_features(words).amx_blocked.find("ARCH_REQ_XCOMP_PERM"), std::string_view::npos);
  words.xcr0 = 0xe7;
  EXPECT_FALSE(decode_cpu_features(words).amx_tile);
  EXPECT_NE(decode_cpu_features(words).amx_blocked.find("XCR0"), std::string_view::npos);
}

TEST(CpuFeatures, AbsentAmxIsNotBlocked) {
  CpuidWords words = sapphire_rapids();
  words.leaf7_edx = 0;
  EXPECT_TRUE(decode_cpu_features(words).amx_blocked.empty());
  EXPECT_FALSE(decode_cpu_features(words).amx_tile);
}

#if defined(__x86_64__)
TEST(CpuFeatures, AgreesWithTheCompilersOwnDetection) {
  const CpuFeatures& f = cpu_features();
  EXPECT_EQ(f.avx2, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(f.fma, __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(f.avx512f, __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(f.avx512_bf16, __builtin_cpu_supports("avx512bf16") != 0);
  EXPECT_FALSE(cpu_model().empty());
}
#endif

}  // namespace
}  // namespace kiln
