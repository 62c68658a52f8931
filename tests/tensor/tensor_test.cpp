#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "autograd/rank_context.h"

namespace kiln {
namespace {

class TensorTest : public testing::Test {
 protected:
  // Filled with 0, 1, 2, ...
  Tensor iota(const Shape& shape) {
    Tensor t = ctx_.empty(shape, DType::i32);
    std::iota(t.data<int32_t>(), t.data<int32_t>() + t.numel(), 0);
    return t;
  }

  // What the view shows, in row-major order, read through its strides.
  static std::vector<int32_t> read(const Tensor& t) {
    std::vector<int32_t> values;
    for (int64_t i = 0; i < t.numel(); ++i) {
      int64_t offset = 0, rest = i;
      for (int a = t.shape().rank() - 1; a >= 0; --a) {
        offset += rest % t.dim(a) * t.stride(a);
        rest /= t.dim(a);
      }
      values.push_back(t.data<int32_t>()[offset]);
    }
    return values;
  }

  static std::string error_of(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  static RankOptions one_thread() {
    RankOptions o;
    o.threads = 1;
    return o;
  }

  RankContext ctx_{one_thread()};
};

using Values = std::vector<int32_t>;

TEST_F(TensorTest, SeesMemoryLaidOutElsewhere) {
  std::vector<int32_t> memory(12);
  std::iota(memory.begin(), memory.end(), 0);
  {
    const Buffer theirs = Buffer::borrowed(memory.data(), {memory.size() * sizeof(int32_t)});
    const Tensor t(theirs, {2, 3, 2}, {2, 4, 1}, DType::i32, Device::cpu());  // rows outside
    EXPECT_EQ(read(t), (std::vector<int32_t>{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}));
    EXPECT_FALSE(t.contiguous());
  }
  EXPECT_EQ(ctx_.allocator().stats().peak_total, 0u);
  EXPECT_EQ(memory.back(), 11);  // not given back to anyone
}

TEST_F(TensorTest, IsRowMajorWhenMade) {
  const Tensor t = iota({2, 3, 4});
  EXPECT_EQ(t.stride(0), 12);
  EXPECT_EQ(t.stride(1), 4);
  EXPECT_EQ(t.stride(2), 1);
  EXPECT_EQ(t.stride(-1), 1);
  EXPECT_EQ(t.stride(-3), 12);
  EXPECT_TRUE(t.contiguous());
  EXPECT_EQ(t.row_stride(), 4);
  EXPECT_EQ(t.numel(), 24);
  EXPECT_EQ(t.bytes(), Bytes{96});
  EXPECT_EQ(t.raw(), t.buffer().data());
  EXPECT_EQ(t.device(), Device::cpu());
}

TEST_F(TensorTest, UndefinedUntilItHasMemory) {
  EXPECT_FALSE(Tensor().defined());
  EXPECT_TRUE(iota({1}).defined());
  EXPECT_TRUE(ctx_.empty({0, 3}, DType::f32).defined());
}

TEST_F(TensorTest, ReadingAsAnotherDtypeIsAnErrorWithBothNames) {
  const Tensor t = iota({4});
  const std::string message = error_of([&] { t.data<float>(); });
  EXPECT_NE(message.find("int32"), std::string::npos) << message;
  EXPECT_NE(message.find("fp32"), std::string::npos) << message;
}

TEST_F(TensorTest, AdjacentRangesJoin) {
  const Tensor t = iota({9});
  const Tensor a = t.narrow(0, 1, 3), b = t.narrow(0, 4, 2), c = t.narrow(0, 7, 2);
  EXPECT_EQ(read(a.joined_with(b)), (Values{1, 2, 3, 4, 5}));
  EXPECT_EQ(read(a.joined_with(b).joined_with(t.narrow(0, 6, 3))), (Values{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_FALSE(b.joined_with(c).defined()) << "a gap";
  EXPECT_FALSE(b.joined_with(a).defined()) << "the wrong way round";
  EXPECT_FALSE(a.joined_with(iota({4})).defined()) << "another buffer";
  EXPECT_FALSE(a.joined_with(Tensor()).defined());
  EXPECT_FALSE(iota({2, 2}).joined_with(a).defined()) << "not flat";
}

TEST_F(TensorTest, NarrowShowsARangeOfTheSameMemory) {
  const Tensor t = iota({3, 4});
  const Tensor rows = t.narrow(0, 1, 2);
  EXPECT_EQ(rows.shape(), (Shape{2, 4}));
  EXPECT_TRUE(rows.contiguous());
  EXPECT_EQ(read(rows), (Values{4, 5, 6, 7, 8, 9, 10, 11}));
  const Tensor columns = t.narrow(-1, 1, 2);
  EXPECT_EQ(columns.shape(), (Shape{3, 2}));
  EXPECT_FALSE(columns.contiguous());
  EXPECT_EQ(read(columns), (Values{1, 2, 5, 6, 9, 10}));
  const Tensor both = columns.narrow(0, 2, 1).narrow(1, 1, 1);
  EXPECT_EQ(read(both), (Values{10}));
  EXPECT_EQ(both.buffer(), t.buffer());
  both.data<int32_t>()[0] = -1;
  EXPECT_EQ(t.data<int32_t>()[10], -1);
  EXPECT_EQ(t.shape(), (Shape{3, 4}));  // the original is untouched
}

TEST_F(TensorTest, NarrowToNothingAndToEverything) {
  const Tensor t = iota({3, 4});
  EXPECT_EQ(t.narrow(0, 3, 0).numel(), 0);
  EXPECT_EQ(read(t.narrow(0, 0, 3)), read(t));
}

TEST_F(TensorTest, NarrowOutsideIsAnErrorWithShapeAndRange) {
  const Tensor t = iota({3, 4});
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(t.narrow(0, 2, 2), Error);
  EXPECT_THROW(t.narrow(0, -1, 1), Error);
  EXPECT_THROW(t.narrow(0, 0, -1), Error);
  EXPECT_THROW(t.narrow(2, 0, 1), Error);
  EXPECT_THROW(t.narrow(-3, 0, 1), Error);
  EXPECT_THROW(t.narrow(0, kMax, 1), Error);
  EXPECT_THROW(t.narrow(0, 1, kMax), Error);
  EXPECT_THROW(t.narrow(0, kMax, kMax), Error);
  EXPECT_THROW(ctx_.empty({}, DType::f32).narrow(0, 0, 1), Error);
  const std::string message = error_of([&] { t.narrow(1, 3, 2); });
  for (const char* part : {"axis 1", "[3, 4]", "3", "2"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST_F(TensorTest, ContiguousLooksPastAxesOfOne) {
  const Tensor t = iota({3, 4});
  EXPECT_TRUE(t.narrow(0, 1, 1).contiguous());
  EXPECT_TRUE(t.narrow(0, 1, 1).narrow(1, 1, 2).contiguous());  // part of one row
  EXPECT_FALSE(t.narrow(1, 0, 1).contiguous());                 // a column
  EXPECT_TRUE(ctx_.empty({}, DType::f32).contiguous());
}

TEST_F(TensorTest, AnEmptyViewIsContiguous) {
  const Tensor t = iota({3, 2, 4});
  for (int axis : {0, 1, 2}) {
    const Tensor none = t.narrow(axis, 1, 0);
    EXPECT_TRUE(none.contiguous()) << axis;
    EXPECT_EQ(none.reshape({0}).numel(), 0) << axis;
    EXPECT_EQ(none.row_stride(), none.shape().last()) << axis;
    EXPECT_EQ(none.reshape_rows().numel(), 0) << axis;
  }
}

TEST_F(TensorTest, ReshapeSharesMemoryAndKeepsTheOrder) {
  const Tensor t = iota({2, 6});
  const Tensor r = t.reshape({3, 4});
  EXPECT_EQ(r.shape(), (Shape{3, 4}));
  EXPECT_EQ(r.stride(0), 4);
  EXPECT_EQ(r.raw(), t.raw());
  EXPECT_EQ(read(r), read(t));
  EXPECT_EQ(read(t.narrow(0, 1, 1).reshape({2, 3})), (Values{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(t.narrow(0, 0, 1).narrow(1, 0, 1).reshape({}).numel(), 1);
}

TEST_F(TensorTest, ReshapeRefusesOtherCountsAndStridedViews) {
  const Tensor t = iota({2, 6});
  const std::string message = error_of([&] { t.reshape({5, 2}); });
  EXPECT_NE(message.find("[2, 6]"), std::string::npos) << message;
  EXPECT_NE(message.find("[5, 2]"), std::string::npos) << message;
  EXPECT_NE(error_of([&] { t.narrow(1, 0, 3).reshape({6}); }).find("strided"), std::string::npos);
}

TEST_F(TensorTest, RowStrideOfEvenlySpacedRows) {
  const Tensor t = iota({2, 3, 8});
  EXPECT_EQ(t.narrow(2, 2, 4).row_stride(), 8);                  // columns of a packed projection
  EXPECT_EQ(t.narrow(0, 1, 1).row_stride(), 8);                  // one of the leading axis
  EXPECT_EQ(t.narrow(1, 1, 1).row_stride(), 24);                 // every third row
  EXPECT_EQ(t.narrow(2, 3, 1).row_stride(), 8);                  // rows of one element
  EXPECT_EQ(t.narrow(0, 0, 1).narrow(1, 0, 1).row_stride(), 8);  // a single row
  EXPECT_EQ(iota({7}).row_stride(), 7);
  EXPECT_EQ(iota({}).row_stride(), 1);
  EXPECT_EQ(iota({4, 1, 1, 2, 3}).row_stride(), 3);
}

TEST_F(TensorTest, RowStrideRefusesRowsThatAreNotEvenlySpaced) {
  const Tensor view = iota({2, 3, 8}).narrow(1, 0, 2);  // rows 0 1, 3 4
  const std::string message = error_of([&] { view.row_stride(); });
  EXPECT_NE(message.find("[2, 2, 8]"), std::string::npos) << message;
  EXPECT_NE(message.find("not evenly spaced"), std::string::npos) << message;
  EXPECT_THROW(view.reshape_rows(), Error);
}

TEST_F(TensorTest, ReshapeRowsSeesRowsWithoutCopying) {
  const Tensor t = iota({2, 2, 6});
  const Tensor rows = t.narrow(2, 1, 2).reshape_rows();
  EXPECT_EQ(rows.shape(), (Shape{4, 2}));
  EXPECT_EQ(rows.stride(0), 6);
  EXPECT_EQ(rows.stride(1), 1);
  EXPECT_EQ(read(rows), (Values{1, 2, 7, 8, 13, 14, 19, 20}));
  EXPECT_EQ(rows.buffer(), t.buffer());
  EXPECT_EQ(iota({}).reshape_rows().shape(), (Shape{1, 1}));
  EXPECT_EQ(iota({5}).reshape_rows().shape(), (Shape{1, 5}));
  EXPECT_EQ(ctx_.empty({0, 5}, DType::f32).reshape_rows().shape(), (Shape{0, 5}));
}

TEST_F(TensorTest, ViewAsShowsTheSameBytes) {
  const Tensor t = ctx_.empty({2, 2}, DType::f32);
  t.data<float>()[0] = 1.0f;
  const Tensor halves = t.view_as(DType::bf16);
  EXPECT_EQ(halves.shape(), Shape{8});
  EXPECT_EQ(halves.bytes(), t.bytes());
  EXPECT_EQ(static_cast<float>(halves.data<bf16>()[1]), 1.0f);  // little endian: the high half
  const Tensor second = t.narrow(0, 1, 1).view_as(DType::u8);
  EXPECT_EQ(second.raw(), t.raw() + 8);
  EXPECT_EQ(second.numel(), 8);
  EXPECT_EQ(second.view_as(DType::f32).data<float>(), t.data<float>() + 2);
}

TEST_F(TensorTest, ViewAsRefusesWhatDoesNotFit) {
  const Tensor bytes = ctx_.empty({12}, DType::u8);
  EXPECT_THROW(bytes.view_as(DType::f64), Error);                  // 12 bytes are no whole number of fp64
  EXPECT_THROW(bytes.narrow(0, 2, 8).view_as(DType::f32), Error);  // not aligned to 4
  EXPECT_EQ(bytes.narrow(0, 4, 8).view_as(DType::f32).numel(), 2);
  EXPECT_THROW(iota({2, 4}).narrow(1, 0, 2).view_as(DType::f32), Error);  // strided
}

TEST_F(TensorTest, DetachKeepsTheDataAndDropsTheTape) {
  Tensor t = iota({2, 2});
  t.set_value({3, 7});
  EXPECT_EQ(t.detach().value().index, -1);
  EXPECT_EQ(t.detach().raw(), t.raw());
  EXPECT_EQ(t.value().index, 3);
  // Views are not values of the tape either: an op that records them says so itself.
  EXPECT_EQ(t.narrow(0, 0, 1).value().index, -1);
  EXPECT_EQ(t.reshape({4}).value().index, -1);
  EXPECT_EQ(t.reshape_rows().value().index, -1);
  EXPECT_EQ(t.view_as(DType::u8).value().index, -1);
  const Tensor copy = t;
  EXPECT_EQ(copy.value().index, 3);
}

TEST_F(TensorTest, ViewsKeepTheMemoryAlive) {
  Tensor view;
  {
    const Tensor t = iota({4, 4});
    view = t.narrow(0, 2, 1);
  }
  EXPECT_EQ(read(view), (Values{8, 9, 10, 11}));
  EXPECT_EQ(ctx_.allocator().stats().live_total, 512U);
  view = {};
  EXPECT_EQ(ctx_.allocator().stats().live_total, 0U);
}

TEST_F(TensorTest, AByteCountThatOverflowsIsAnError) {
  RankOptions options;
  options.device = Device::meta();
  RankContext meta(options);
  EXPECT_THROW(meta.empty({int64_t{1} << 61}, DType::f64), Error);        // 2^64 bytes
  EXPECT_THROW(meta.empty({(int64_t{1} << 61) + 1}, DType::f64), Error);  // 8 bytes past 2^64
  EXPECT_THROW(meta.empty({int64_t{1} << 40, int64_t{1} << 30}, DType::f32), Error);
  EXPECT_EQ(meta.empty({int64_t{1} << 40}, DType::f32).bytes(), Bytes{std::size_t{1} << 42});
}

TEST_F(TensorTest, CloneUploadAndDownloadCopyContiguousTensors) {
  const Tensor t = iota({2, 3});
  const Tensor copy = ctx_.clone(t.narrow(0, 1, 1));
  EXPECT_EQ(read(copy), (Values{3, 4, 5}));
  EXPECT_NE(copy.buffer(), t.buffer());
  const int32_t fresh[] = {9, 8, 7};
  ctx_.upload(t.narrow(0, 1, 1), fresh);
  EXPECT_EQ(read(t), (Values{0, 1, 2, 9, 8, 7}));
  EXPECT_EQ(read(copy), (Values{3, 4, 5}));
  int32_t out[3] = {};
  ctx_.download(out, copy);
  EXPECT_EQ(out[2], 5);
  EXPECT_EQ(read(ctx_.zeros({2}, DType::i32)), (Values{0, 0}));
  const Tensor strided = t.narrow(1, 0, 2);
  EXPECT_THROW(ctx_.clone(strided), Error);
  EXPECT_THROW(ctx_.upload(strided, fresh), Error);
  EXPECT_THROW(ctx_.download(out, strided), Error);
}

}  // namespace
}  // namespace kiln
