#include "base/error.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(Error, CarriesWhatHintAndKind) {
  const Error error("[rms_norm] weight has 512 elements, last axis of x is 768", "check hidden_size",
                    ErrorKind::usage);
  EXPECT_STREQ(error.what(), "[rms_norm] weight has 512 elements, last axis of x is 768");
  EXPECT_EQ(error.hint(), "check hidden_size");
  EXPECT_EQ(error.kind(), ErrorKind::usage);
}

TEST(Error, IsAPlainFailureUnlessSaidOtherwise) {
  const Error error("no");
  EXPECT_EQ(error.kind(), ErrorKind::failed);
  EXPECT_TRUE(error.hint().empty());
}

TEST(Error, CatJoinsAnythingPrintable) {
  EXPECT_EQ(cat("x is [", 2, ", ", 3L, "], eps ", 0.5), "x is [2, 3], eps 0.5");
}

}  // namespace
}  // namespace kiln
