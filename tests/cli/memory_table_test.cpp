#include "kiln/console/memory_table.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

MemoryStats stats() {
  MemoryStats s;
  s.peak[Tag::param] = 20 << 20;
  s.peak[Tag::activation] = 3 << 10;
  s.peak_total = (20 << 20) + 512;
  return s;
}

TEST(MemoryTable, ShowsGroupsBesideTagsAndLeavesEmptyTagsOut) {
  EXPECT_EQ(memory_table({65'792, 1'573'000, 3'538'944, 3328, 65'792}, false, stats()),
            "parameters               memory, predicted peak\n"
            "  embedding    65.79 K     weights          20.00 MiB\n"
            "  attention    1.573 M     activations       3.00 KiB\n"
            "  mlp          3.539 M     peak             20.00 MiB\n"
            "  norms        3.328 K\n"
            "  head         65.79 K\n"
            "  total        5.247 M\n");
  EXPECT_NE(memory_table({}, true, stats()).find("head            tied"), std::string::npos);
}

TEST(MemoryTable, HasMoreTagsThanGroupsWhereNeeded) {
  MemoryStats s;
  for (std::size_t& bytes : s.peak.values) bytes = 1;
  const std::string table = memory_table({}, false, s);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 10);
}

TEST(MemoryTable, ComparesPredictedWithMeasured) {
  EXPECT_EQ(memory_comparison(stats(), stats(), true),
            "memory, peak       predicted    measured\n"
            "  weights          20.00 MiB   20.00 MiB\n"
            "  activations       3.00 KiB    3.00 KiB\n"
            "  peak             20.00 MiB   20.00 MiB\n"
            "  the same to the byte\n");
  MemoryStats other = stats();
  other.peak[Tag::data] = 64;
  other.peak[Tag::activation] -= 1024;
  const std::string table = memory_comparison(stats(), other, true);
  EXPECT_NE(table.find("batches                0 B        64 B  64 bytes more\n"), std::string::npos)
      << table;
  EXPECT_NE(table.find("2.00 KiB  1024 bytes less\n"), std::string::npos) << table;
  EXPECT_EQ(table.find("to the byte"), std::string::npos);
  // Of a run that Ctrl-C ended, less is what there was so far.
  const std::string stopped = memory_comparison(stats(), other, false);
  EXPECT_NE(stopped.find("2.00 KiB\n"), std::string::npos) << stopped;
  EXPECT_NE(stopped.find("64 B  64 bytes more\n"), std::string::npos) << stopped;
  EXPECT_NE(stopped.find("the run was stopped before"), std::string::npos) << stopped;
}

TEST(MemoryTable, CountsForPeople) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(139'712), "139.7 K");
  EXPECT_EQ(human_count(5'246'720), "5.247 M");
  EXPECT_EQ(human_count(12'833'000'000), "12.83 B");
}

}  // namespace
}  // namespace kiln
