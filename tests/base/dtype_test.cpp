#include "base/dtype.h"

#include <gtest/gtest.h>

#include <string>

namespace kiln {
namespace {

constexpr DType kAll[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                          DType::i64, DType::i32, DType::i16,  DType::u8};

template <class T>
void expect_type(DType t, const char* name, bool floating) {
  EXPECT_EQ(dtype_of<T>(), t);
  EXPECT_EQ(size_of(t), sizeof(T)) << name;
  EXPECT_EQ(name_of(t), name);
  EXPECT_EQ(is_float(t), floating) << name;
}

TEST(DType, SizesNamesAndCppTypesAgree) {
  expect_type<double>(DType::f64, "fp64", true);
  expect_type<float>(DType::f32, "fp32", true);
  expect_type<bf16>(DType::bf16, "bf16", true);
  expect_type<fp16>(DType::f16, "fp16", true);
  expect_type<int64_t>(DType::i64, "int64", false);
  expect_type<int32_t>(DType::i32, "int32", false);
  expect_type<int16_t>(DType::i16, "int16", false);
  expect_type<uint8_t>(DType::u8, "uint8", false);
}

TEST(DType, WithFloatCallsWithTheTypeOfTheDtypeAndRefusesIntegers) {
  for (DType t : kAll) {
    if (is_float(t)) {
      EXPECT_EQ(with_float(t, [](auto zero) { return dtype_of<decltype(zero)>(); }), t);
      continue;
    }
    try {
      with_float(t, [](auto) {});
      FAIL() << name_of(t) << " was taken for a floating dtype";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(name_of(t)), std::string::npos) << e.what();
    }
  }
}

TEST(DType, StatisticsAreNeverNarrowerThanFp32) {
  EXPECT_EQ(stat_dtype(DType::f64), DType::f64);
  for (DType t : {DType::f32, DType::bf16, DType::f16}) EXPECT_EQ(stat_dtype(t), DType::f32);
  EXPECT_TRUE((std::is_same_v<Accum<double>, double>));
  EXPECT_TRUE((std::is_same_v<Accum<float>, float>));
  EXPECT_TRUE((std::is_same_v<Accum<bf16>, float>));
  EXPECT_TRUE((std::is_same_v<Accum<fp16>, float>));
}

}  // namespace
}  // namespace kiln
