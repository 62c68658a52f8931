#include "base/error.h"

#include <gtest/gtest.h>

#include <new>
#include <ostream>

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

// As a stream marks itself when it cannot grow.
struct NoMemory {
  friend std::ostream& operator<<(std::ostream& s, NoMemory) {
    s.setstate(std::ios_base::badbit);
    return s;
  }
};

TEST(Error, CatThrowsWhereItCannotHoldTheText) {
  EXPECT_ANY_THROW((void)cat("begins ", NoMemory{}, " and ends"));
}

TEST(Error, MissingMemoryIsSaidInWords) {
  EXPECT_STREQ(words_of(std::bad_alloc()), "out of memory on the host");
  EXPECT_STREQ(words_of(std::bad_array_new_length()), "out of memory on the host");
  EXPECT_STREQ(words_of(Error("the disk is full")), "the disk is full");
}

}  // namespace
}  // namespace kiln
