#include "studies/self_check/self_check.h"

#include <gtest/gtest.h>

#include <set>

#include "ops/op_list.h"

namespace kiln {
namespace {

// Every variant that runs here has a row, but for the definitions themselves; each row says how near it came.
TEST(SelfCheck, EveryVariantOfAnOpHasARowAndPasses) {
  const std::vector<SelfCheckRow> rows =
      self_check({Device::cpu(), {"rms_norm", "swiglu"}, nullptr}, [](const auto&) {});
  std::set<std::string> seen;
  for (const SelfCheckRow& r : rows) {
    EXPECT_TRUE(r.passed()) << r.op << " " << r.variant << ": " << r.reason;
    EXPECT_GT(r.runs, 2);
    EXPECT_GT(r.worst, 0);
    EXPECT_LE(r.worst, 1);
    seen.insert(r.op + " " + r.variant);
  }
  std::set<std::string> expected;
  const std::vector<OpListing> ops = list_ops(Device::cpu());
  for (const char* name : {"rms_norm", "swiglu"})
    for (const VariantListing& v : find_op(ops, name).variants)
      if (v.available && v.device == DeviceType::cpu && v.name != "naive")
        expected.insert(std::string(name) + " " + v.name);
  EXPECT_EQ(seen, expected);
  const StudyPage page = self_check_page(rows, Device::cpu());
  EXPECT_EQ(page.json.at("failed"), 0);
  EXPECT_EQ(page.rows.size(), rows.size());
}

TEST(SelfCheck, EndsWhenItIsStopped) {
  EXPECT_THROW((void)self_check({Device::cpu(), {"rms_norm"}, [] { return true; }}, [](const auto&) {}),
               Stopped);
}

}  // namespace
}  // namespace kiln
